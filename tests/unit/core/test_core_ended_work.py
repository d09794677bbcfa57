"""Work of the disk tier is counted by what became of it, from the events that go into the log."""

import pytest

from kvledgerd.core.commands import RestoreDone
from kvledgerd.core.decision import DiskRead
from kvledgerd.core.disk_commands import RestoreLate
from kvledgerd.loop.live_core import LiveCore
from support.layouts import compressed, window
from support.world import World, layout

PROMPT = list(range(600))
ROWS, WINDOW = "COMPRESSED_KV", "SWA_WINDOW"


@pytest.fixture
def reading():
    """A core in which a restore of rows and of a window has begun, and what reads it."""
    user = World().engine()
    number = user.register(layout(compressed(), window()))
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    user.world.held = []
    user.restore(number, PROMPT, 512)
    (read,) = (effect for effect in user.world.held if isinstance(effect, DiskRead))
    return LiveCore(user.world.state), read


def told(core):
    """Return what was counted and is not 0."""
    return {name: number for name, number in core.ended.counters().items() if number}


def end(core, command):
    """Decide a command and apply what follows."""
    for event in core.decide(command).events:
        core.apply(event)


@pytest.mark.parametrize(
    ("rows", "windows", "expected"),
    [
        ("", "", {f"restore_done.{ROWS}": 1, f"restore_done.{WINDOW}": 1}),
        ("failed: I/O error", "", {f"restore_failed.{ROWS}": 1, f"restore_done.{WINDOW}": 1}),
        ("", "damaged: it is gone", {f"restore_done.{ROWS}": 1, f"restore_failed.{WINDOW}": 1}),
        ("cancelled: nobody waits for it any more", "", {f"restore_done.{WINDOW}": 1}),
    ],
)
def test_a_restore_is_counted_by_kind_and_by_what_it_brought(reading, rows, windows, expected):
    """A kind of which one object lacks has failed; what nobody waited for any more is neither."""
    core, read = reading
    errors = {ROWS: rows, WINDOW: windows}
    said = [errors.pop(record.kind.name, "") for record in read.records]  # only the first object of each kind
    end(core, RestoreDone(read.job, tuple(said)))
    assert told(core) == expected


def test_a_restore_that_was_given_up_has_failed_however_its_read_ends(reading):
    """A read that ends well after its restore was overdue brings nothing, and is counted as failed, once."""
    core, read = reading
    end(core, RestoreLate(read.job, 30))
    assert told(core) == {}
    end(core, RestoreDone(read.job, ("",) * len(read.records)))
    assert told(core) == {f"restore_failed.{ROWS}": 1, f"restore_failed.{WINDOW}": 1}
