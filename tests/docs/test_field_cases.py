"""The table of docs/field-cases.md has every case, and each case the tests that it names."""

from __future__ import annotations

import re
from pathlib import Path

from docs.pages import table

PAGE = "docs/field-cases.md"
TESTS = Path(__file__).parents[1]
CASES = {
    "V": "01 03 04 06 07 09 10 12 13 14 16 17 19 20 21 23 24 27 28 29 30 32 33 35 37 38 39 41 42 44 45 47 48 49 51 52"
    " 53 55 56 57 58 60",
    "P": "01 03 05 06 08 09 11 12 14 16 17 18 19 21 23 24 26 27 28 29 31 32 34 35 36 37 39 41",
    "L": "01 02 03 04 05 07 09 10 11 13 14 15 16 17 19 21 22 23 25 26 27 28 30 31 32 34 36 37 38 40 41 43 45 46 48 49"
    " 52",
    "F": "01 02 03 04 05 06 07 08 09 10",
}
"""Ids in the order of the page; a case keeps its id for ever."""


def rows():
    """Return each case's sentence and the files that it names."""
    return {case: (says, re.findall(r"`([^`]+)`", files)) for case, says, files in table(PAGE, "## The cases")}


def cases_of(path):
    """Return the ids that the names of a file's tests carry."""
    names = re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    return {part.upper() for name in names for part in name.split("_") if re.fullmatch(r"[vplf]\d\d", part)}


def test_every_case_has_its_row():
    """No case is missing, none is invented, and they stand in order."""
    assert list(rows()) == [letter + number for letter, numbers in CASES.items() for number in numbers.split()]


def test_every_file_that_is_named_has_the_case():
    """A file that a row names has a test with the case's id in its name, so that `pytest -k` finds it."""
    wrong = [
        (case, file) for case, (_, files) in rows().items() for file in files if case not in cases_of(TESTS / file)
    ]

    assert wrong == []


def test_a_case_without_tests_says_why():
    """A row names a test or begins with `Not yet`, and never both."""
    wrong = [case for case, (says, files) in rows().items() if says.startswith("Not yet: ") == bool(files)]

    assert wrong == []


def test_a_case_that_has_tests_is_not_called_missing():
    """Where a test carries the id of a case, its row says what holds and names the file."""
    tested = {case for path in TESTS.rglob("test_*.py") for case in cases_of(path)}

    assert [case for case, (_, files) in rows().items() if case in tested and not files] == []
