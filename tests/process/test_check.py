"""`kvledger check` on a daemon that runs: what holds, what was changed behind its back, and what it costs nobody."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvledger import Cache
from kvledger.errors import ServiceError
from kvledger.memfd import PAGE_BYTES
from kvledger.shm import ArenaView
from kvledger.testing import Daemon
from kvledgerd.checking import checks
from kvledgerd.checking.checks import check
from support.descriptors import open_files
from support.tiny import prompt, store, tiny_layout

TOKENS = 50
CHECKS = 2


def kvledger(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would."""
    command = [sys.executable, "-m", "kvledgerd.cli", "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def checked(data: Path, *arguments: str, code: int = 0) -> dict:
    """Run the command in its machine form, and return the object on its last line."""
    found = kvledger("--data", str(data), *arguments, "--json")
    assert found.returncode == code, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


@contextmanager
def changed(descriptor: int, offset: int) -> Iterator[None]:
    """Change a byte of a file, and put it back."""
    before = os.pread(descriptor, 1, offset)
    os.pwrite(descriptor, bytes([before[0] ^ 1]), offset)
    try:
        yield
    finally:
        os.pwrite(descriptor, before, offset)


@contextmanager
def arena_with(pid: int, marker: bytes) -> Iterator[tuple[int, int, int]]:
    """Open the arena that holds a marker for writing, as a process of the daemon's uid could.

    Yields:
        Descriptor, offset of the marker, and offset of the generation of the page in which it lies.
    """
    for link, target in open_files(pid):
        if "memfd:kvledger-arena" not in target:
            continue
        descriptor = os.open(link, os.O_RDWR)
        at = os.pread(descriptor, os.fstat(descriptor).st_size, 0).find(marker)
        if at >= 0:
            header = ArenaView(descriptor).header
            yield descriptor, at, header.table_offset + 8 * ((at - header.data_offset) // PAGE_BYTES)
            os.close(descriptor)
            return
        os.close(descriptor)
    raise AssertionError("no arena holds the marker")


@pytest.fixture(scope="module")
def daemon():
    """A daemon with one prompt in memory and one that lies on disk as well."""
    with Daemon(memory="64MiB") as running:
        with Cache.open(running.socket, name="writer") as cache:
            layout = cache.register(tiny_layout())
            store(cache, layout, 1)
            store(cache, layout, 2)
            cache.offload(layout, prompt(2), boundary=TOKENS)
        yield running


def test_a_running_daemon_is_what_its_log_makes(daemon):
    """The live form compares digest, arenas and records with a replay of its own, and finds nothing wrong."""
    found = checked(daemon.data_dir, "--socket", str(daemon.socket), "--deep")
    assert (found["ok"], found["violations"], found["unchecked"]) == (True, [], [])
    assert found["objects"] > 0
    assert found["seq"] > 0


@pytest.mark.slow
def test_nothing_is_wrong_while_others_write(daemon):
    """Checks beside clients that store, read and evict without pause find no fault, live and offline."""
    stop = threading.Event()

    def work() -> None:
        with Cache.open(daemon.socket, name="busy") as cache:
            layout = cache.register(tiny_layout("busy"))
            seed = 0
            while not stop.is_set():
                seed = seed % 20 + 1
                store(cache, layout, seed)
                cache.offload(layout, prompt(seed), boundary=TOKENS, drop_memory=seed % 2 == 0)
                cache.acquire(layout, [*prompt(seed), 9]).release()

    busy = threading.Thread(target=work)
    busy.start()
    try:
        live = [checked(daemon.data_dir, "--socket", str(daemon.socket), "--deep") for _ in range(CHECKS)]
        offline = [checked(daemon.data_dir, "--deep") for _ in range(CHECKS)]
    finally:
        stop.set()
        busy.join()
    assert [text for found in live + offline for text in found["violations"]] == []
    assert sorted({found["seq"] for found in live}) == [found["seq"] for found in live]


def test_a_generation_that_is_not_the_logged_one_is_found(daemon):
    """A generation table that says something else than the log is named by cell, slot and arena."""
    with arena_with(daemon.pid, b"prompt 1 tail at") as (descriptor, _, generation), changed(descriptor, generation):
        found = checked(daemon.data_dir, "--socket", str(daemon.socket), code=65)
    assert not found["ok"]
    assert len(found["violations"]) == 1
    assert "in the arena's table, the log says" in found["violations"][0]
    assert checked(daemon.data_dir, "--socket", str(daemon.socket))["ok"]


def test_bytes_in_memory_that_changed_are_found_by_reading_them(daemon):
    """A changed byte in an arena is found by --deep, and only by that."""
    with arena_with(daemon.pid, b"prompt 1 tail at") as (descriptor, at, _), changed(descriptor, at):
        assert checked(daemon.data_dir, "--socket", str(daemon.socket))["ok"]
        found = checked(daemon.data_dir, "--socket", str(daemon.socket), "--deep", code=65)
    assert [text.partition(": ")[2] for text in found["violations"]] == ["the bytes are not those that were committed"]


@pytest.mark.parametrize(("distance", "arguments"), [(0, ("--deep",)), (-PAGE_BYTES, ())], ids=["payload", "header"])
def test_a_record_that_changed_is_found_offline(daemon, distance, arguments):
    """A changed header on disk is found by any check, a changed payload by --deep."""
    segments = sorted((daemon.data_dir / "data").glob("*.seg")) or sorted((daemon.data_dir / "data").iterdir())
    path = next(path for path in segments if path.is_file() and b"prompt 2 tail at" in path.read_bytes())
    at = path.read_bytes().find(b"prompt 2 tail at")
    descriptor = os.open(path, os.O_RDWR)
    try:
        with changed(descriptor, at + distance):
            found = checked(daemon.data_dir, *arguments, code=65)
    finally:
        os.close(descriptor)
    assert len(found["violations"]) == 1
    assert "in segment" in found["violations"][0]
    assert checked(daemon.data_dir, "--deep")["ok"]


def test_another_digest_than_the_log_makes_is_a_violation(daemon):
    """A daemon whose state has left what its log says is found, though both are sound in themselves."""
    with Cache.open(daemon.socket, name="asker") as cache:
        report = cache.status()
    assert check(daemon.data_dir, report, deep=False).ok
    found = check(daemon.data_dir, replace(report, digest="0" * 16), deep=False)
    assert [text for text in found.violations if "the daemon has digest" in text] == found.violations != []


def test_a_daemon_that_writes_another_log_is_refused(daemon, monkeypatch):
    """What a daemon answers is not compared with a log that does not reach it: the directory is another's."""
    monkeypatch.setattr(checks, "LOG_SECONDS", 0.1)
    with Cache.open(daemon.socket, name="asker") as cache:
        report = cache.status()
    with pytest.raises(ServiceError, match="is at seq 1000000, the log in"):
        check(daemon.data_dir, replace(report, seq=1_000_000), deep=False)


def test_people_get_a_sentence(daemon):
    """Without --json the answer is one line where all is well."""
    found = kvledger("--data", str(daemon.data_dir), "--socket", str(daemon.socket))
    assert found.stdout.startswith("ok: seq ")
    assert len(found.stdout.splitlines()) == 1
