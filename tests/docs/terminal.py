"""A terminal as a reader has one: a real shell, and nothing in its environment that this test run has put there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Self

import pytest

from docs.pages import ROOT

HERE = Path(sys.executable).parent
"""Where the programs of this environment lie, as behind `. .venv/bin/activate`."""
_END = "-- end of line --"
_OURS = ("KVLEDGER_", "PYTEST", "PYTHON", "TRITON", "VIRTUAL_ENV", "ARGS", "MAKE", "MFLAGS")
"""Beginnings of variables that are left out; the last three are how `make test ARGS=...` tells a make within."""


class Terminal:
    """A shell in the checkout.

    Args:
        home: The reader's home, which may be empty. Settings and cache of pip stay those of whoever runs the tests.
        programs: Folders of programs that come before all others.
    """

    def __init__(self, home: Path, *programs: Path) -> None:
        self.home, real = home, Path.home()
        path = os.pathsep.join(map(str, (*programs, Path(sys.base_prefix) / "bin", os.environ["PATH"])))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        pip = {"XDG_CACHE_HOME": str(real / ".cache"), "XDG_CONFIG_HOME": str(real / ".config")}
        self._shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**pip, **kept, "HOME": str(home), "PATH": path},
            start_new_session=True,
        )
        self.type(f"exec 2> {home}/stderr")

    def type(self, line: str, code: int = 0) -> str:
        """Type a line, see it end with this code, and return what it has printed."""
        self._shell.stdin.write(f"{line}\nprintf '\\n%s%s\\n' '{_END}' $?\n")
        self._shell.stdin.flush()
        said = []
        for one in self._shell.stdout:
            if one.startswith(_END):
                found = int(one.removeprefix(_END))
                assert found == code, f"{line} ended with {found}: {''.join(said)}{self.errors()}"
                return "".join(said).removesuffix("\n")
            said.append(one)
        return pytest.fail(f"{line} has ended the shell: {''.join(said)}{self.errors()}")

    def errors(self) -> str:
        """Return the end of what has gone to stderr."""
        return (self.home / "stderr").read_text(encoding="utf-8", errors="replace")[-8000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close it, and end what was left in its background."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()


@cache
def why_no_index() -> str:
    """Return why pip can install nothing here, empty if it can: it needs the builder of the package at least."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries=1", "--timeout=15"]
        try:
            subprocess.run(
                [*pip, "--dest", folder, "hatchling>=1.27"], capture_output=True, text=True, timeout=120, check=True
            )
        except subprocess.TimeoutExpired:
            return "no package index answers pip"
        except subprocess.CalledProcessError as error:
            return f"pip reaches no package index: {error.stderr.strip().splitlines()[-1]}"
    return ""


def require_index() -> None:
    """Skip the test where pip reaches no package index."""
    if why := why_no_index():
        pytest.skip(why)
