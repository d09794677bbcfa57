"""The table of commands, and what is made from it."""

import json
import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from kvledger.wire.commands import BY_TYPE, COMMANDS, allows
from kvledger.wire.framing import decode_reply, decode_request
from kvledger.wire.replies import Failed, Reply, Welcome
from kvledger.wire.requests import Request

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/protocol.md"
sys.path.append(str(ROOT / "scripts"))


def test_every_request_has_one_row():
    """Each request stands in the table once, and nothing else does."""
    assert [command.request for command in COMMANDS] == list(BY_TYPE)
    assert set(BY_TYPE) == set(get_args(Request))


def test_every_reply_answers_something():
    """Each reply is the answer to some request; only a refusal answers all."""
    answers = {answer for command in COMMANDS for answer in command.replies}
    assert answers == set(get_args(Reply)) - {Failed}


def test_rows_are_complete():
    """Names are the tags of the wire, and each row says in one sentence what it does."""
    for command in COMMANDS:
        assert command.name == command.request.__struct_config__.tag
        assert command.sentence.endswith(".")
    assert BY_TYPE[COMMANDS[0].request].replies == (Welcome,)


@pytest.mark.parametrize(
    ("held", "needed", "may"),
    [("reader", "writer", False), ("writer", "reader", True), ("writer", "writer", True), ("operator", "writer", True)],
)
def test_rights_include_the_lesser_ones(held, needed, may):
    """An operator may write, a writer may read, and not the other way round."""
    assert allows(held, needed) is may


def test_table_of_the_docs_is_fresh():
    """The table in docs/protocol.md is what scripts/protocol_table.py prints; rerun it if this fails."""
    import protocol_table

    text = protocol_table.PAGE.read_text()
    assert protocol_table.START in text
    assert text == protocol_table.page(text)


def test_golden_frames_are_fresh():
    """The golden frames are what this code sends; a change of them is a change of the protocol."""
    import golden_frames

    assert golden_frames.TARGET.read_text() == golden_frames.text()


def test_golden_frames_hold_every_message():
    """Each message has a golden frame, and decoding it gives a message of that name."""
    golden = json.loads((ROOT / "tests/golden/frames.json").read_text())
    decode = {"request": decode_request, "reply": decode_reply}
    for entry in golden:
        number, message = decode[entry["direction"]](bytes.fromhex(entry["frame"])[4:])
        assert (number, message.__struct_config__.tag) == (3, entry["message"])
    assert len(golden) == len(get_args(Request)) + len(get_args(Reply))


def test_frames_of_the_docs_are_golden():
    """The frames that docs/protocol.md spells out are those of the golden file."""
    golden = {entry["message"]: entry["frame"] for entry in json.loads((ROOT / "tests/golden/frames.json").read_text())}
    lines = re.findall(r"^(release|settle|done)\b.*?  ([0-9a-f ]{20,})$", PAGE.read_text(), re.MULTILINE)
    assert {name: frame.replace(" ", "") for name, frame in lines} == {
        name: golden[name] for name in ("release", "settle", "done")
    }


def test_twins_are_fresh():
    """The synchronous client is what scripts/unasync.py writes; rerun it if this fails."""
    import unasync

    assert unasync.differences(unasync.twins()) == []


def test_unused_substitution_is_an_error(monkeypatch):
    """A substitution that matches nothing fails the generator, because it hides a renamed class."""
    import unasync

    monkeypatch.setattr(unasync, "SUBSTITUTIONS", (*unasync.SUBSTITUTIONS, ("AsyncNothing", "Nothing")))
    with pytest.raises(SystemExit, match="AsyncNothing"):
        unasync.twins()


def test_hand_edited_twin_is_found(monkeypatch, tmp_path):
    """A twin that was edited, or that nothing generates, is a difference."""
    import unasync

    found = {tmp_path / "unit.py": "new\n"}
    (tmp_path / "unit.py").write_text("old\n")
    (tmp_path / "stray.py").write_text("")
    monkeypatch.setattr(unasync, "TARGET", tmp_path)
    lines = unasync.differences(found)
    assert "stray.py: not generated, remove it" in lines
    assert "+new" in lines
