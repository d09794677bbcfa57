"""A daemon that holds its memory over a damaged log: it says what is wrong, and everybody may still read the past."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from kvledger_storage.events import Checkpoint, encode
from kvledger_storage.log import EventLog, verify
from support.commands import kvledger
from support.refusal import refusal
from support.tiny import check, prompt, store, tiny_layout

SETTINGS = {"arena_bytes": "4MiB", "log_segment_bytes": "64KiB"}
PROMPTS = 12


def filled(daemon):
    """Store and offload a little, and look some of it up."""
    with Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        assert check(cache, layout, 900) == 0
        for number in range(PROMPTS):
            store(cache, layout, number)
            check(cache, layout, number // 2)
        cache.offload(layout, prompt(3), boundary=50)


def flip(daemon):
    """Stop the daemon where it stands, flip a byte behind most of its log, and kill it; returns the whole content."""
    segment = min(daemon.log_dir.glob("*.seg"))
    os.kill(daemon.pid, signal.SIGSTOP)
    whole = segment.read_bytes()
    at = len(whole.rstrip(b"\0")) - 1500
    segment.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    daemon.kill()
    return segment, whole


@pytest.fixture(scope="module")
def held():
    """Give a daemon that holds the memory of a life whose log was damaged near its end."""
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon:
        filled(daemon)
        flip(daemon)
        refusal(daemon)
        yield daemon


def test_every_hello_is_told_what_is_held_and_what_to_do(held):
    """The error names file and offset, what is lost and safe, the arenas that are held, and the process to signal."""
    error = refusal(held)

    assert error.code == "damaged"
    for part in (
        ".seg: damaged at offset",
        "; 2 arenas of 8",
        "lost: ",
        "safe: seq 1 to ",
        "next: ",
    ):
        assert part in error.message
    assert f"process {held.pid}" in error.message
    assert "SIGHUP" in error.remedy


def test_status_is_an_answer(held):
    """`kvledger status` prints the refusal, in both forms, and ends with 65; so does whatever needs a daemon."""
    told = kvledger("status", "--socket", str(held.socket))
    machine = kvledger("status", "--socket", str(held.socket), "--json")

    assert (told.returncode, machine.returncode) == (65, 65)
    assert told.stdout.startswith("REFUSED: ")
    assert "damaged at offset" in json.loads(machine.stdout)["refused"]
    assert kvledger("quota", "show", "--socket", str(held.socket)).returncode == 65
    assert kvledger("check", "--data", str(held.data_dir), "--socket", str(held.socket)).returncode == 65


READING = [
    ["audit", "objects"],
    ["audit", "object", "1.0"],
    ["audit", "why"],
    ["audit", "epochs"],
    ["audit", "topologies"],
    ["explain"],
    ["log", "verify"],
    ["log", "cat"],
    ["log", "tail"],
    ["log", "replay"],
    ["log", "rebuild"],
    ["check"],
]


@pytest.mark.parametrize("question", READING, ids=" ".join)
def test_the_past_can_be_read_while_the_memory_is_held(held, question):
    """Each reading command answers from all that is safe, says where the log is damaged, and ends with 65."""
    code, out, err = kvledger(*question, "--data", str(held.data_dir), "--json")
    told = err if question != ["log", "verify"] else f"rule {json.loads(out)['problem']['rule']}"

    assert code == 65
    assert any(rule in told for rule in ("rule synced-damage", "rule same-boot-damage"))
    assert "damaged at offset" in err or question == ["log", "verify"]
    if question[0] in {"audit", "explain"} and question[1:] != ["topologies"]:
        assert any(json.loads(out).values())
    assert not verify(held.log_dir).ok


def test_nobody_starts_beside_it(held, tmp_path):
    """The held daemon keeps the lock, so a second one ends at once, and can not set its log aside."""
    paths = ["--data", str(held.data_dir), "--socket", str(tmp_path / "s")]
    program = [sys.executable, "-m", "kvledgerd.cli", "serve", *paths]
    second = subprocess.run(
        [*program, "--no-keeper", "--memory", "64MiB", "--on-corrupt=quarantine"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert second.returncode == 78
    assert f"held by process {held.pid}" in second.stderr


def contradict(log_dir):
    """Append a checkpoint that no replay can agree with, in a frame without fault."""
    with EventLog.open(log_dir) as log:
        incarnation = log.last_incarnation
        log.writer(incarnation, lambda *_: None, lambda _: None).submit(
            [[encode(Checkpoint(1), 0, "daemon")]], durable=True
        )


@pytest.fixture
def contradictory(tmp_socket_dir):
    """Give a stopped daemon whose log is whole by the byte and contradicts itself at its end."""
    with Daemon(memory="64MiB", directory=tmp_socket_dir, settings=SETTINGS) as daemon:
        filled(daemon)
        assert daemon.stop() == 0
        contradict(daemon.log_dir)
        yield daemon


def test_a_log_that_contradicts_itself_is_refused_in_the_same_words(contradictory):
    """`verify` says what a start does: the event, its file and offset; the daemon holds, and audit tells the rest."""
    data = str(contradictory.data_dir)
    report = json.loads(kvledger("log", "verify", "--data", data, "--json").stdout)
    last = report["last_seq"]
    contradictory.start()
    error = refusal(contradictory)

    assert (report["ok"], report["decision"], report["problem"]["rule"]) == (False, "refuse", "contradiction")
    assert (report["problem"]["seq"], report["problem"]["offset"] > 0) == (last, True)
    assert "rule contradiction" in error.message
    for question in (["log", "replay"], ["check"], ["audit", "objects"]):
        found = kvledger(*question, "--data", data, "--json")
        assert found.returncode == 65, question
        assert f"(seq {last}, rule contradiction)" in found.stderr
    assert json.loads(kvledger("log", "replay", "--data", data, "--json").stdout)["seq"] == last - 1
    assert contradictory.stop() == 65


def test_a_log_that_contradicts_itself_can_be_set_aside(contradictory):
    """With --on-corrupt=quarantine the daemon begins anew on it as on a damaged one, and the old log stays readable."""
    settings = SETTINGS | {"quarantine_log": "true"}
    with Daemon(memory="64MiB", directory=contradictory.directory, settings=settings) as daemon:
        with Cache.open(daemon.socket) as cache:
            assert check(cache, cache.register(tiny_layout()), 3) == 0
        assert daemon.stop() == 0
    (aside,) = daemon.log_dir.glob("quarantine-*")

    assert verify(aside).ok
    assert verify(daemon.log_dir).ok
