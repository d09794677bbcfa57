"""Whatever the pages tell a reader to type does what they say, on a throwaway daemon."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.pages import PAGES, ROOT, blocks, commands, pages_with_commands, pages_with_python, table
from kvledger import Cache, KVLedgerError
from kvledger.testing import Daemon, say_hello
from support.commands import kvledger
from support.tiny import check, store, tiny_layout

DATA, SOCKET = "/var/lib/kvledger", "/run/kvledger/kvledger.sock"
TRACE = ROOT / "tests/golden/trace.jsonl"
END = "-- end of block --"
ADAPTERS = "docs/adapters.md"
"""Its models take seconds each time."""
ASKING = {
    "audit",
    "check",
    "epoch",
    "evict",
    "explain",
    "export",
    "health",
    "layout",
    "log",
    "quota",
    "status",
    "tenants",
    "trace",
}
WITH_DATA = {"log", "audit", "check", "explain", "export", "layout", "page"}
WITH_SOCKET = {"status", "health", "metrics", "warm", "quota", "evict", "top", "tenants", "epoch", "page"}


@pytest.fixture(scope="module")
def daemon():
    """One daemon for all pages, with a hit, a miss and an object to ask about."""
    with Daemon(memory="256MiB") as running:
        with Cache.open(running.socket, name="reader") as cache:
            layout = cache.register(tiny_layout())
            store(cache, layout, 1)
            check(cache, layout, 1)
            check(cache, layout, 2)
            store(cache, layout, 3)
        yield running


@cache
def run(*words: str) -> str:
    """Run `kvledger` as a reader would, once however many pages say so, and return what it prints."""
    if words[1] in ASKING and set(words).isdisjoint({"tail", "follow"}):
        found = kvledger(*words[1:])
    else:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KVLEDGER_")}
        command = [sys.executable, "-m", "kvledgerd.cli", *words[1:]]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert found.returncode == 0, f"{' '.join(words)} ended with {found.returncode}: {found.stderr}"
    return found.stdout


@contextlib.contextmanager
def served(words: list[str], *program: str | Path) -> Iterator[None]:
    """Start what a page starts, in a folder of its own, see it answer, and stop it in the orderly way."""
    with tempfile.TemporaryDirectory(prefix="kvl-") as folder:
        socket = Path(folder) / "kvledger.sock"
        # The last one named counts, so what the page says stays in place
        arguments = [*words[1:], "--data", folder, "--socket", str(socket)]
        command = [*(program or (sys.executable, "-m", "kvledgerd.cli")), *arguments]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            try:
                _wait(socket, process)
                yield
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0, process.stderr.read().decode()
            finally:
                process.kill()


def _wait(socket: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(KVLedgerError):
            say_hello(socket, 1)
            return
        time.sleep(0.02)
    pytest.fail(f"the daemon of the page does not answer: {process.args}")


@pytest.fixture(scope="module")
def known(daemon) -> dict[str, str]:
    """What stands here in the place of the examples of a page: paths, an object, a look-up, a layout, a trace."""
    data = str(daemon.data_dir)
    objects = json.loads(run("kvledger", "audit", "objects", "--data", data, "--json"))["objects"]
    asked = json.loads(run("kvledger", "audit", "why", "--data", data, "--json"))["verdicts"]
    folders = {"/tmp/kvledger-audit": "csv", "/tmp/kvledger-report": "report"}
    there = {said: str(daemon.data_dir / name) for said, name in folders.items()}
    there |= {DATA: data, SOCKET: str(daemon.socket), "SOCKET": str(daemon.socket), "FILE": str(TRACE)}
    layout = tiny_layout().digest.hex()[:8]
    return there | {"17.0": objects[0]["name"], "4711": str(asked[0]["seq"]), "1f2e": layout}


def real(words: list[str], known: dict[str, str]) -> list[str]:
    """Put the places and numbers of this daemon where a page has its examples."""
    words = [known.get(word, word) for word in words]
    if words[1] in WITH_DATA and "--data" not in words:
        words += ["--data", known[DATA]]
    if words[1] in WITH_SOCKET and "--socket" not in words:
        words += ["--socket", known[SOCKET]]
    if words[1] == "top" and "--count" not in words:
        words += ["--count", "1"]
    if words[1:3] == ["log", "tail"]:
        words += ["--to", "1"]
    return words


def program(page: str) -> tuple[str, int]:
    """Return the Python of a page as one program, each line at its number on the page, and how many blocks it has."""
    lines = [""] * len((ROOT / page).read_text(encoding="utf-8").splitlines())
    ran = [block for block in blocks(page) if block.language == "python" and not block.not_run]
    for block in ran:
        text = block.text.splitlines()
        lines[block.line - 1 : block.line - 1 + len(text)] = text
        # In the place of the closing fence
        lines[block.line - 1 + len(text)] = f"print({END!r})"
    return "\n".join(lines), len(ran)


@pytest.mark.parametrize("page", pages_with_python())
def test_python_runs_and_prints_what_the_page_says(page, known, tmp_path):
    """The Python of a page runs and prints what stands below it, and runs again on a daemon that holds its objects."""
    source, ran = program(page)
    times = 1 if page == ADAPTERS else 2
    script = tmp_path / f"{Path(page).stem}.py"
    script.write_text(source.replace(SOCKET, known[SOCKET]), encoding="utf-8")
    command = f"from runpy import run_path\nfor _ in range({times}):\n    run_path({str(script)!r})"
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", command], capture_output=True, text=True, timeout=90, check=False
    )
    assert found.returncode == 0, f"{page}: {found.stderr}"
    said = found.stdout.split(f"{END}\n")
    assert len(said) == times * ran + 1
    before = ""
    for block in blocks(page):
        if block.is_printed:
            assert before == block.text, f"{page}:{block.line} does not show what the block before it prints"
        elif block.language == "python" and not block.not_run:
            before = said.pop(0)


@pytest.mark.parametrize("page", pages_with_commands())
def test_commands_run(page, known):
    """Every `kvledger` line of a page ends with 0; `test_shell_lines.py` says who runs all others."""
    for words in commands(page):
        if words[1] == "serve" and "--print-config" not in words:
            with served(words):
                pass
        else:
            run(*real(words, known))


def test_each_counter_of_a_status_is_explained(known):
    """The table of counters names each number that a status report holds, and no other."""
    counters = json.loads(run("kvledger", "status", "--socket", known[SOCKET], "--json"))["counters"]
    named = {name for row in table("docs/status.md", "## Counters") for name in re.findall(r"`(.+?)`", row[0])}
    assert named == {re.sub(r"\.[A-Z_]+$", ".KIND", name) for name in counters}


def test_printed_blocks_follow_python():
    """What is marked as printed stands right behind Python that runs, so that no such mark is without effect."""
    for page in PAGES:
        found = list(blocks(page))
        for before, block in zip([None, *found], found, strict=False):
            if block.is_printed:
                assert before is not None, f"{page}:{block.line}"
                assert before.language == "python", f"{page}:{block.line}"
                assert not before.not_run, f"{page}:{block.line}"
