"""The table of docs/hostile-inputs.md has every input, and each the tests that are marked with its id."""

from __future__ import annotations

import ast
import re
from functools import cache

from docs.pages import table
from support.tidy.source import repository

PAGE = "docs/hostile-inputs.md"
GROUPS = {"FR": 16, "OR": 11, "ID": 8, "BY": 7, "DE": 6, "LO": 12, "DI": 10, "TI": 3, "AR": 4, "FU": 1, "SC": 1}
"""Letters and number of inputs of each group, in the order of the page; an input keeps its id for ever."""


def rows():
    """Return the tests that each row names, as (file, function)."""
    return {number: re.findall(r"`([\w/]+\.py)::(\w+)`", tests) for number, _, _, tests in table(PAGE, "## The inputs")}


@cache
def marked():
    """Return the ids that each test is marked with, by (file, function)."""
    found = {}
    for file in repository():
        if file.is_python and file.path.startswith("tests/"):
            for node in file.tree.body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[file.path.removeprefix("tests/"), node.name] = ids_of(node)
    return found


def ids_of(node):
    """Return the ids in the marks of one function."""
    calls = [one for one in node.decorator_list if ast.unparse(one).startswith("pytest.mark.hostile(")]
    return {one.value for call in calls for one in call.args}


def test_every_input_has_its_row():
    """No input is missing, none is invented, and they stand in order."""
    assert list(rows()) == [f"{group}{number:02}" for group, most in GROUPS.items() for number in range(1, most + 1)]


def test_every_row_names_tests_that_are_marked_with_it():
    """Each row names at least one test, and each of them exists and is marked, so that `pytest -k` finds it."""
    wrong = [
        (number, test) for number, tests in rows().items() for test in tests if number not in marked().get(test, ())
    ]

    assert wrong == []
    assert [number for number, tests in rows().items() if not tests] == []


def test_every_mark_stands_in_its_row():
    """A test that is marked with an input is named by the row of that input."""
    named = rows()
    missing = [(test, number) for test, ids in marked().items() for number in ids if test not in named.get(number, ())]

    assert missing == []
