"""The tutorial is typed as a reader would, from top to bottom, in an empty folder."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from docs.pages import TUTORIAL, Block, blocks
from support.commands import kvledger

_NAME = re.compile(r"\b\d+\.\d+\b(?= +swa)")
_FILE = re.compile(r"^<!-- file: (\S+) -->$")


class Session:
    """A shell in the current folder, as far as the tutorial needs one."""

    def __init__(self) -> None:
        self.served: subprocess.Popen[bytes] | None = None
        self.named: dict[str, str] = {}
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("KVLEDGER_")}

    def type(self, line: str) -> str:
        """Do what a line says, and return what it prints."""
        if line.startswith("kvledger serve "):
            return self._serve(line)
        if line.startswith("kill -KILL "):
            os.kill(int(Path("data/log/lock").read_text(encoding="ascii").split()[0]), signal.SIGKILL)
            return ""
        if line == "kill %1 && wait":
            self.served.send_signal(signal.SIGTERM)
            assert self.served.wait(30) == 0
            return ""
        if line.startswith("python "):
            return self._python(shlex.split(line)[1:])
        return self._ask(line)

    def _serve(self, line: str) -> str:
        """Start a daemon in the background, and wait until its log says ready, as the page tells its reader to."""
        words, log = line.removesuffix(" &").split(" 2> ")
        command = [sys.executable, "-m", "kvledgerd.cli", *shlex.split(words)[1:]]
        with Path(log).open("wb") as errors:
            self.served = subprocess.Popen(command, stderr=errors, env=self.environment)
        end = time.monotonic() + 30
        while self.served.poll() is None and time.monotonic() < end:
            if b'"event": "ready"' in Path(log).read_bytes():
                return ""
            time.sleep(0.02)
        return pytest.fail(f"the daemon of the page does not answer: {Path(log).read_text(encoding='utf-8')}")

    @staticmethod
    def _python(words: list[str]) -> str:
        """Run a file inside this process, since starting Python would take most of its time."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", words)
            runpy.run_path(words[0], run_name="__main__")
        return out.getvalue()

    def _ask(self, line: str) -> str:
        command, _, wanted = line.partition(" | grep ")
        found = kvledger(*(self.named.get(word, word) for word in shlex.split(command)[1:]))
        assert found.returncode == 0, f"{line}: {found.stderr}"
        return "".join(one for one in found.stdout.splitlines(keepends=True) if wanted in one)

    def read(self, shown: str, found: str) -> None:
        """Note what the name in the first row of a table is here, as the page tells its reader to."""
        here, there = _NAME.search(found), _NAME.search(shown)
        if here and there:
            self.named.setdefault(there[0], here[0])

    def end(self) -> None:
        """Leave nothing behind, whatever became of the session."""
        if self.served is not None and self.served.poll() is None:
            self.served.terminate()
            self.served.wait(30)


@pytest.fixture
def session(tmp_path, monkeypatch):
    """A shell in an empty folder."""
    monkeypatch.chdir(tmp_path)
    opened = Session()
    yield opened
    opened.end()


def told(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a block, each with what the page says it prints."""
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def form(text: str) -> str:
    """Return output without what differs from run to run: numbers, and the widths of columns that hold them."""
    return re.sub(r" +", " ", re.sub(r"[━─]+", "─", re.sub(r"digest [0-9a-f]+|\d+", "0", text)))


def test_the_tutorial_does_what_it_says(session):
    """Each file is saved and each command typed in turn, and all of them print what stands on the page."""
    ran = 0
    for block in blocks(TUTORIAL):
        saved = _FILE.match(block.mark)
        if saved:
            Path(saved[1]).write_text(block.text, encoding="utf-8")
        for line, printed in told(block) if block.language == "console" and not block.not_run else ():
            found = session.type(line)
            session.read(printed, found)
            like = str if line.startswith("python ") else form
            assert like(found) == like(printed), f"{TUTORIAL}:{block.line}: {line}"
            ran += 1
    assert ran > 10
