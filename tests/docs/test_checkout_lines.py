"""Lines of the pages that belong to the checkout and its `.venv`, each `make` line among them.

Where a target would take long, the least is asked for that it can be asked for; what is the suite itself is collected.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from docs.pages import OPS, PAGES, ROOT, shell_line, shell_lines
from docs.terminal import HERE, Terminal

INSTALLATION = ("make install", "make uninstall")
"""`test_install_lines.py` types these."""


class Typed(NamedTuple):
    """How a line is tried.

    Attributes:
        says: What stands in its output, if all is well.
        least: What is asked for instead of what the line asks for.
        code: How it ends.
    """

    says: str
    least: str | None = None
    code: int = 0


COLLECTED = Typed("::test_the_page_names_every_metric", "--collect-only -q")
BENCH = '"rows":'
LINES = {
    "make help": Typed("make test-all"),
    "make demo": Typed("All equal", "--models gemma3"),
    "make test": COLLECTED,
    "make test-all": COLLECTED,
    'make test ARGS="-k verdict -x"': Typed("test_core_verdict.py::", "-k verdict -x --collect-only -q"),
    "make lint": Typed("Success: no issues found"),
    "make gpu": Typed('"gpu":', code=0 if Path("/dev/nvidiactl").exists() else 2),
    "make faults": Typed('"log: recovery table": {"tried"', "--only 'recovery table'"),
    "make faults ARGS=--short": Typed('"log: recovery table": {"tried"', "--short --only 'recovery table'"),
    "make soak": Typed('"wrong_bytes": 0', "--seconds 8 --engines 2 --memory 48"),
    "make bench": Typed(BENCH, "durable"),
    'make bench ARGS="commit commits"': Typed(BENCH),
    'make bench ARGS="--out bench.json"': Typed(BENCH, "durable --out ~/bench.json"),
    'make bench ARGS="crowd --clients 1000"': Typed(BENCH, "crowd --clients 20"),
    'make bench ARGS="recover --objects 1000000"': Typed(BENCH, "recover --objects 2000"),
}
NOT_TYPED = {
    "make kernels": "-m kvledger_kernels.check",  # which kernels/test_compiling.py runs, for minutes
    "make pythons": "scripts/pythons.py",  # which needs minutes for each Python, and makes environments beside .venv
    "make PYTHON=python3.12 test": "-m pytest",  # which would make .venv anew where that is older
}
"""Lines of which make is only asked what it would run."""


def make_lines() -> set[str]:
    """Return the lines of all pages, without what is said about them."""
    lines = (line for page in (*PAGES, *OPS) for line in shell_lines(page) if line.startswith("make "))
    return {line.partition("#")[0].strip() for line in lines} - {*INSTALLATION}


def test_each_line_is_tried():
    """The tables above have all lines of the pages that call `make`, and no others."""
    assert make_lines() == LINES.keys() | NOT_TYPED.keys()


@pytest.fixture
def terminal(tmp_path):
    """A terminal with the programs of this environment, where `.venv` is ready, so that no line makes it."""
    if subprocess.run(["make", "-q", ".venv/.ready"], cwd=ROOT, check=False).returncode:
        pytest.skip("the environment of make is not ready: this run has another one")
    with Terminal(tmp_path, HERE) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("line", sorted(LINES))
def test_a_line_does_what_the_page_says(terminal, line):
    """As it stands, make knows what to do; done, at least in part, it ends as it should and says what it found."""
    terminal.type(line.replace("make", "make --dry-run", 1))
    says, least, code = LINES[line]
    asked = line if least is None else f"{line.partition(' ARGS=')[0]} ARGS={shlex.quote(least)}"
    assert says in terminal.type(asked, code)


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted(NOT_TYPED))
def test_a_line_that_is_not_typed_would_run_a_program(terminal, line):
    """What make would run for it is the program of the target."""
    assert NOT_TYPED[line] in terminal.type(line.replace("make", "make --dry-run", 1))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", ["docs/field-cases.md", "docs/hostile-inputs.md"])
def test_a_row_is_found_by_its_id(terminal, page):
    """The line runs the tests of one row and no others, and they pass."""
    said = terminal.type(shell_line(page, "pytest -k"))
    assert re.search(r"\d+ passed, \d{4} deselected", said)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("page", "line", "says"),
    [
        ("docs/benchmarks.md", "python benchmarks/lookup_parts.py", " us  together"),
        ("docs/kernels.md", "python -m kvledger_kernels.rates", " GB/s"),
    ],
)
def test_parts_and_rates_are_printed(terminal, page, line, says):
    """The programs behind single figures of the pages run, and print theirs."""
    assert says in terminal.type(shell_line(page, line))


@pytest.mark.slow
def test_the_hooks_are_installed(tmp_path):
    """In a clone whose `.venv` is there, what CONTRIBUTING types puts a hook in place."""
    if not (HERE / "pre-commit").exists():
        pytest.skip("pre-commit is not installed: it comes with the extra [dev]")
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "clone"], check=True, timeout=60)
    (tmp_path / "clone/.venv").symlink_to(HERE.parent)
    with Terminal(tmp_path) as opened:
        opened.type("cd ~/clone")
        assert "installed" in opened.type(shell_line("CONTRIBUTING.md", ".venv/bin/pre-commit"))
    assert os.access(tmp_path / "clone/.git/hooks/pre-commit", os.X_OK)
