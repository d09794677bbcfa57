"""The tutorial is typed as a reader would, from top to bottom, in an empty folder.

By default commands run inside this process, since starting Python would take most of the time; the slow test has a real
shell and begins with the installation.
"""

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
from docs.terminal import Terminal, require_index
from support.commands import kvledger

_NAME = re.compile(r"\b\d+\.\d+\b(?= +swa)")
_FILE = re.compile(r"^<!-- file: (\S+) -->$")


class Session:
    """A shell in the current folder, as far as the tutorial needs one."""

    def __init__(self) -> None:
        self.served: subprocess.Popen[bytes] | None = None
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
            assert self.served.wait(60) == 0
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
        until_ready(Path(log))
        return ""

    @staticmethod
    def _python(words: list[str]) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", words)
            runpy.run_path(words[0], run_name="__main__")
        return out.getvalue()

    def _ask(self, line: str) -> str:
        command, _, wanted = line.partition(" | grep ")
        found = kvledger(*shlex.split(command)[1:])
        assert found.returncode == 0, f"{line}: {found.stderr}"
        return "".join(one for one in found.stdout.splitlines(keepends=True) if wanted in one)

    def end(self) -> None:
        """Leave nothing behind, whatever became of the session."""
        if self.served is not None and self.served.poll() is None:
            self.served.terminate()
            self.served.wait(60)


class RealSession(Terminal):
    """The same in a real shell."""

    def type(self, line: str, code: int = 0) -> str:
        """Type a line; behind one that starts a daemon, wait until its log says ready."""
        if not line.startswith("kvledger serve "):
            return super().type(line, code)
        log = self.home / "kvledger-tutorial" / line.removesuffix(" &").split(" 2> ")[1]
        log.write_bytes(b"")  # an earlier one has said so, too
        said = super().type(line, code)
        until_ready(log)
        return said


def until_ready(log: Path) -> None:
    """Wait as the page tells its reader to."""
    end = time.monotonic() + 60
    while b'"event": "ready"' not in log.read_bytes():
        assert time.monotonic() < end, f"the daemon of the page does not answer: {log.read_text(encoding='utf-8')}"
        time.sleep(0.02)


def told(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a block, each with what the page says it prints."""
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def form(text: str) -> str:
    """Return output without what differs from run to run: numbers, and the widths of columns that hold them."""
    return re.sub(r" +", " ", re.sub(r"[━─]+", "─", re.sub(r"digest [0-9a-f]+|\d+", "0", text)))


def follow(session: Session | RealSession, folder: Path) -> int:
    """Save each file and type each command of the page in turn, compare what it prints, and count the commands."""
    ran, named = 0, {}
    for block in blocks(TUTORIAL):
        if saved := _FILE.match(block.mark):
            (folder / saved[1]).write_text(block.text, encoding="utf-8")
        for line, printed in told(block) if block.language == "console" and not block.not_run else ():
            found = session.type(" ".join(named.get(word, word) for word in line.split(" ")))
            # The reader is told to take the name in the first row of a table
            here, there = _NAME.search(found), _NAME.search(printed)
            if here and there:
                named.setdefault(there[0], here[0])
            like = str if line.startswith("python ") else form
            assert like(found) == like(printed), f"{TUTORIAL}:{block.line}: {line}"
            ran += 1
    return ran


def test_the_tutorial_does_what_it_says(tmp_path, monkeypatch):
    """Each file is saved and each command typed in turn, and all of them print what stands on the page."""
    monkeypatch.chdir(tmp_path)
    session = Session()
    try:
        assert follow(session, tmp_path) > 10
    finally:
        session.end()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tutorial_gets_there_from_nothing(tmp_socket_dir):
    """Who has a checkout and an empty home, and types what stands there from the installation on, gets all of it."""
    require_index()
    (install,) = [block for block in blocks(TUTORIAL) if block.not_run]
    with RealSession(tmp_socket_dir) as session:
        for line in install.typed:
            session.type(line)
        assert session.type("command -v kvledger").strip() == f"{tmp_socket_dir}/kvledger-env/bin/kvledger"
        assert follow(session, tmp_socket_dir / "kvledger-tutorial") > 10
