"""Logs of every released form are read as they were written, and no form of event has changed since."""

import pytest

from kvledger_storage.events import decode, encode
from kvledger_storage.log import EventLog, verify
from support.golden_log import DIRECTORY, FORMS, read_golden, unpack
from support.log_sessions import contents

GOLDEN = sorted(DIRECTORY.glob("log-*.json"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_log_is_read_as_it_was_written(path, tmp_path):
    """The files verify, give every event byte for byte, and a daemon goes on behind them."""
    golden = read_golden(path)
    unpack(golden, tmp_path)
    report = verify(tmp_path)

    assert (report.ok, report.decision, report.log_id) == (True, "clean", golden["log_id"])
    assert report.segments > 1
    with EventLog.open(tmp_path) as log:
        assert [raw.hex() for raw in contents(log).values()] == golden["events"]
        assert log.last_incarnation == 3
        writer = log.writer(4, lambda *_: None, lambda _: None)
        writer.submit([[bytes.fromhex(golden["events"][0])]], durable=True)
    assert verify(tmp_path).last_seq == len(golden["events"]) + 1


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_event_still_has_its_form(path):
    """Each event decodes, and encodes to the very bytes that it was; a form that changed needs another tag."""
    for raw in map(bytes.fromhex, read_golden(path)["events"]):
        entry = decode(raw)
        assert encode(entry.event, entry.time_ms, entry.actor) == raw


def test_every_form_of_event_is_golden():
    """Each form that this version writes stands in a golden log."""
    found = {
        decode(bytes.fromhex(raw)).event.__struct_config__.tag for path in GOLDEN for raw in read_golden(path)["events"]
    }
    assert found == FORMS
