"""Events of older forms: read through the table of steps, and refused where it does not lead to a known form."""

import msgspec
import pytest

from kvledger_storage.events import EngineHeard, EventError, decode
from kvledger_storage.upcasting import UPCASTERS


def logged(*event):
    """Return the bytes of an event as another version would have written it."""
    return msgspec.msgpack.encode([1700000000000, "daemon", list(event)])


@pytest.fixture
def steps(monkeypatch):
    """Two older forms of `engine_heard.1`: one that said "speaks", and before it one without a flag."""
    monkeypatch.setitem(UPCASTERS, "engine_lost.0", lambda event: ["engine_heard.0", event[1], False])
    monkeypatch.setitem(UPCASTERS, "engine_heard.0", lambda event: ["engine_heard.1", event[1], not event[2]])


@pytest.mark.usefixtures("steps")
def test_older_forms_are_read_as_the_newest():
    """Steps are chained: both older forms become today's event, with time and actor as they were."""
    assert decode(logged("engine_heard.0", 7, 1)).event == EngineHeard(7, silent=False)
    assert decode(logged("engine_lost.0", 7)).event == EngineHeard(7, silent=True)
    assert decode(logged("engine_lost.0", 7)).time_ms == 1700000000000


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("event", [("engine_heard.2", 7, True), ("engine_lost.0",), ("engine_heard.0", "seven", 1), ()])
def test_what_no_step_reads_is_refused(event):
    """Newer forms, and older ones whose fields are not what they were, are no events."""
    with pytest.raises(EventError, match="at least as new"):
        decode(logged(*event))
