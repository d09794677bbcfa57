"""The command line inside this process, for tests that ask so much that starting Python would take most of their time.

Programs of their own are what `tests/process/test_commands.py` starts.
"""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple

from kvledgerd.commands.table import run


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


def kvledger(*words):
    """Run `kvledger` with these words, its output going into pipes."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(words)
        except SystemExit as end:
            code = end.code
    return Ended(int(code or 0), out.getvalue(), err.getvalue())
