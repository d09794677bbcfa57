"""Whatever is wrong with a log, each command that reads it says what, where, what is safe and what to do next."""

from __future__ import annotations

import json
import shutil
from typing import NamedTuple

import pytest

from kvledger.errors import KVLedgerError
from kvledger_storage.events import SegmentsArchived, encode
from kvledger_storage.log import EventLog, LogError
from kvledgerd.commands.table import run
from kvledgerd.life.recovery import recover
from kvledgerd.settings.loading import Config
from kvledgerd.snapshots.make import make_snapshot
from property.test_core_histories import History
from support.damages import DAMAGES

SEGMENT = 4096
LATER = 60


class Told(NamedTuple):
    """What is expected: exit code and decision of `verify`, the rule, and part of the words for what to do."""

    code: int
    decision: str = ""
    rule: str = ""
    words: str = ""


BACKUP = "restore this file from a backup"
SERVES = Told(0, "clean")
SNAPSHOT = Told(0, "clean", "", "rebuild")
TABLE = {
    "torn_tail": Told(0, "repair_tail", "torn", "start the daemon"),
    "cut_tail": Told(65, "refuse", "synced-damage", BACKUP),
    "shortened": Told(65, "refuse", "synced-damage", BACKUP),
    "flipped_tail": Told(65, "refuse", "synced-damage", BACKUP),
    "flipped_sealed": Told(65, "refuse", "sealed-damage", BACKUP),
    "missing_first": Told(65, "clean", "archive-damage", "copy of the archive"),
    "missing_live": Told(65, "refuse", "break", BACKUP),
    "missing_middle": Told(65, "refuse", "break", BACKUP),
    "missing_last": Told(65, "refuse", "synced-frames-missing", BACKUP),
    "swapped": Told(65, "refuse", "break", BACKUP),
    "foreign": Told(65, "refuse", "break", BACKUP),
    "emptied": Told(65, "refuse", "break", BACKUP),
    "no_id": Told(65, "refuse", "identity", BACKUP),
    "flipped_id": Told(65, "refuse", "identity", BACKUP),
    "flipped_begin": Told(65, "refuse", "break", BACKUP),
    "no_mark": SERVES,
    "flipped_archive": Told(65, "clean", "archive-damage", "copy of the archive"),
    "missing_archive": Told(65, "clean", "archive-damage", "copy of the archive"),
    "flipped_snapshot": SNAPSHOT,
    "newer": Told(78),
    "empty": Told(78),
    "no_log": Told(78),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Give a data directory: a random history in a log of which a part is archived, and a snapshot."""
    data = tmp_path_factory.mktemp("whole")
    history = History(4)
    history.run(400)
    with EventLog.open(data / "log", segment_bytes=SEGMENT) as log:
        writer = log.writer(1, lambda *_: None, lambda _: None)
        for raw in history.world.log[:-LATER]:
            writer.submit([[raw]], durable=True)
    with EventLog.open(data / "log", segment_bytes=SEGMENT) as log:
        ends = log.sealed_ends()
        assert len(ends) > 6
        writer = log.writer(1, lambda *_: None, lambda _: None)
        writer.submit([[encode(SegmentsArchived(*ends[2]), 0, "daemon")]], durable=True)
        log.archive_through(ends[2])
        for raw in history.world.log[-LATER:]:
            writer.submit([[raw]], durable=True)
    make_snapshot(data)
    return data


@pytest.fixture(params=DAMAGES)
def damaged(request, whole, tmp_path):
    """Give the damaged copy, and what has to be told of it."""
    data = tmp_path / "data"
    shutil.copytree(whole, data)
    DAMAGES[request.param](data)
    return data, TABLE[request.param]


def test_verify_tells_damage_by_rule_place_and_remedy(damaged, capsys):
    """`log verify` ends with the code of the table, names the rule that a start would, and all that helps."""
    data, told = damaged
    code = run(["log", "verify", "--data", str(data), "--json"])
    out, err = capsys.readouterr()

    assert code == told.code, (out, err)
    if code == 78:
        assert str(data) in err
        assert "name the data directory" in err or "newer" in err
        return
    report = json.loads(out)
    problem = report["problem"]
    assert (report["decision"], problem["rule"] if problem else "") == (told.decision, told.rule)
    if problem:
        assert told.words in problem["run_next"]
        assert problem["file"].startswith(str(data))
        assert all(problem[name] for name in ("because", "expected", "found", "lost", "safe"))
    assert bool(report["snapshots"]) == (told is SNAPSHOT)


def test_a_start_decides_as_verify_says(damaged, capsys):
    """Where `verify` says that a start would serve, it does; where it says refuse, the start names the same place."""
    data, told = damaged
    if told.code == 78 and not (data / "log/id").exists():
        return  # a start makes a new log there
    run(["log", "verify", "--data", str(data), "--json"])
    out = capsys.readouterr().out
    try:
        recover(Config(data_dir=data, log_segment_bytes=1 << 16), {}, lambda _: None).log.close()
        decided = None
    except (LogError, KVLedgerError) as error:
        decided = error
    if told.decision in {"clean", "repair_tail"}:
        assert decided is None
    elif told.code == 65:
        found = json.loads(out)["problem"]
        assert (decided.problem.file, decided.problem.rule) == (found["file"], found["rule"])
    else:
        assert decided is not None


READING = [
    ["log", "cat"],
    ["log", "replay"],
    ["log", "rebuild"],
    ["check"],
    ["audit", "objects"],
    ["audit", "why"],
    ["explain"],
]


@pytest.mark.slow
def test_every_reading_command_ends_in_words(damaged, capsys):
    """Each command ends with the code of the table; over damage it names the place and what to run, and never fails."""
    data, told = damaged
    for question in READING:
        code = run([*question, "--data", str(data), "--json"])
        err = capsys.readouterr().err

        # This log's records are nowhere, which `check` is right to say.
        others = {0: told.rule == "archive-damage", 65: question == ["check"]}
        allowed = {told.code, *(code for code, fits in others.items() if fits)}
        assert code in allowed, (question, err)
        if told.code == code == 65:
            assert "damaged at offset" in err, (question, err)
            assert "\n  next: " in err
            assert "rule read" not in err
