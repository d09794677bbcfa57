"""What ``kvledger top`` makes of two looks at a daemon, and how it draws it."""

import pytest
from rich.console import Console

from kvledger.kinds import Kind
from kvledger.wire.quotas import QuotaInfo
from kvledger.wire.replies import StatusReport
from kvledgerd.sizes import short_bytes
from kvledgerd.top.drawing import draw, lost
from kvledgerd.top.overview import Look, overview

QUIET = {
    "arena_bytes": 3 << 20,
    "memory_cap_bytes": 4 << 20,
    "disk_bytes": 0,
    "disk_cap_bytes": 1 << 30,
    "objects": 7,
    "engines": 1,
    "connections": 2,
    "leases": 3,
    "units": 0,
    "topologies": 0,
    "topologies_broken": 0,
    "queue_commands": 0,
    "queue_parked": 0,
    "decisions": 100,
    "decision_faults": 0,
    "stored_unusable": 5,
    "log_written_seq": 40,
    "log_spares": 2,
    "hash_hit_tokens": 0,
    "recoverable_hit_tokens": 0,
    "ready_hit_tokens": 0,
}


def look(at, incarnation=1, **counters):
    """A look at a daemon whose counters are as given."""
    quotas = [QuotaInfo(Kind.SWA_WINDOW, 1 << 20, fixed=True, held_bytes=3 << 20, live_bytes=1 << 20, missed_tokens=0)]
    return Look(at, StatusReport(incarnation, 40, "00", QUIET | counters), quotas)


def drawn(what):
    """The screen as text."""
    console = Console(width=140, file=None, record=True, quiet=False)
    with console.capture() as taken:
        console.print(what)
    return taken.get()


def test_rates_are_those_of_the_time_between_two_looks():
    """500 tokens and 20 decisions in two seconds are 250 and 10 a second."""
    kinds = {"hash_hit_tokens.SWA_WINDOW": 500, "ready_hit_tokens.SWA_WINDOW": 100}
    now = overview(look(10.0), look(12.0, decisions=120, hash_hit_tokens=500, ready_hit_tokens=400, **kinds))
    assert now.rates == {"decisions": 10, "events": 0}
    assert [tuple(hit) for hit in now.hits] == [("", 250, 0, 200), ("SWA_WINDOW", 250, 0, 50)]


def test_a_restart_between_two_looks_gives_no_rates():
    """Counters begin at 0 with an incarnation: no rate is below 0, and the screen says that it restarted."""
    now = overview(look(10.0), look(12.0, incarnation=2, decisions=3))
    assert (now.restarted, now.seconds, set(now.rates.values())) == (True, 0, {0})
    assert "restarted" in drawn(draw(now))


@pytest.mark.parametrize(
    ("counters", "says"),
    [
        ({"decision_faults": 1}, "1 decisions ended in an exception"),
        ({"topologies_broken": 2}, "2 topologies read memory"),
        ({"stored_unusable": 9}, "4 units were refused"),
        ({"log_spares": 1}, "disk under it is full"),
    ],
)
def test_what_to_look_into_is_said(counters, says):
    """Each sign of trouble is a sentence on the screen, and a quiet daemon has none."""
    assert says in drawn(draw(overview(look(1.0), look(2.0, **counters))))
    assert overview(look(1.0), look(2.0)).warnings == []


def test_the_screen_shows_what_is_full():
    """Memory against its cap, each kind within its arenas, and what the kind is sure of."""
    screen = drawn(draw(overview(None, look(1.0))))
    assert "3 MiB  4 MiB" in screen
    assert "SWA_WINDOW" in screen
    assert "no daemon answers at /x" in drawn(lost("/x", "gone"))


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1536, "1.5 KiB"), (1 << 20, "1 MiB"), (5 << 40, "5 TiB")]
)
def test_bytes_are_written_with_three_digits(number, text):
    """No number of bytes is longer than three digits and a unit."""
    assert short_bytes(number) == text
