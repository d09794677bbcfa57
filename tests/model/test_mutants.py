"""Each lie about verdicts and leases is told from the truth by the test that is named beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from model.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
TESTS = list(dict.fromkeys(mutant.test for mutant in MUTANTS))
FAILED = 1


def outcome(test: str, *roots: Path) -> subprocess.CompletedProcess[str]:
    """Run one test in a process of its own, with these source roots ahead of those that are installed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, roots))}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.lie)
def test_table_fits_the_code(mutant):
    """Each text stands exactly once in its file, and each named test exists."""
    file, _, rest = mutant.test.partition("::")
    assert (ROOT / mutant.file).read_text().count(mutant.text) == 1
    assert f"def {rest.partition('[')[0]}(" in (ROOT / file).read_text()


@pytest.mark.slow
def test_named_tests_pass_on_the_truth():
    """Without a lie all named tests pass, so that a failure is due to the lie."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.lie)
def test_lie_is_told(mutant, tmp_path):
    """With the lie in place the named test fails, and not for want of collecting it."""
    root = Path(mutant.file).parts[0]
    shutil.copytree(ROOT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / mutant.file
    path.write_text(path.read_text().replace(mutant.text, mutant.replacement))
    found = outcome(mutant.test, tmp_path / root)
    assert found.returncode == FAILED, found.stdout
    assert "1 failed" in found.stdout
