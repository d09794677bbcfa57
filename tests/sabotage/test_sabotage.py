"""Every lie of the table is told apart from the truth by the test that is named beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sabotage.device_mutants import DEVICE_MUTANTS
from sabotage.disk_mutants import DISK_MUTANTS
from sabotage.mutants import MUTANTS
from sabotage.page_mutants import PAGE_MUTANTS
from sabotage.placement_mutants import PLACEMENT_MUTANTS
from sabotage.unit_mutants import UNIT_MUTANTS
from sabotage.verdict_mutants import VERDICT_MUTANTS

ROOT = Path(__file__).parents[2]
ALL = (*MUTANTS, *UNIT_MUTANTS, *VERDICT_MUTANTS, *DEVICE_MUTANTS, *DISK_MUTANTS, *PLACEMENT_MUTANTS, *PAGE_MUTANTS)
TESTS = sorted({mutant.test for mutant in ALL})
FAILED, NOTHING = 1, 5


def pytest_of(test, *roots):
    """Run one test in a process of its own, with these source roots ahead of those that are installed.

    Of its cases the slow ones are left out, unless it is slow as a whole.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, roots))}
    for marks in ("not slow", "slow"):
        found = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-m", marks, "-p", "no:cacheprovider", test],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode != NOTHING:
            break
    return found


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.lie)
def test_the_table_fits_the_code(mutant):
    """Each text stands exactly once in its file, and each named test exists."""
    file, _, rest = mutant.test.partition("::")
    name = rest.partition("[")[0]

    assert (ROOT / mutant.file).read_text().count(mutant.text) == 1
    assert f"def {name}" in (ROOT / file).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("test", TESTS)
def test_named_test_passes_on_the_truth(test):
    """Without a lie each named test passes, so its failure is due to the lie."""
    found = pytest_of(test)

    assert found.returncode == 0, found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.lie)
def test_mutant_is_killed(mutant, tmp_path):
    """With the lie in place the named test fails."""
    root = Path(mutant.file).parts[0]
    shutil.copytree(ROOT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / mutant.file
    path.write_text(path.read_text().replace(mutant.text, mutant.replacement))

    found = pytest_of(mutant.test, tmp_path / root)

    assert found.returncode == FAILED, found.stdout
