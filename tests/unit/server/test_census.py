"""The census of prefixes: what a status says of the states of all boundaries."""

from kvledger.kinds import Kind
from kvledger.wire.requests import Evict
from kvledgerd.life import census
from kvledgerd.life.census import PrefixCensus
from support.lossy import END, PROMPT, config, lossy_layout
from support.world import World, group, layout


def states(found):
    """Return the counters that are not zero, without their common beginning."""
    return {name.removeprefix("prefixes_"): count for name, count in found.counters().items() if count}


def test_boundaries_are_counted_by_state():
    """What goes to disk quantised is compressed, then restored, then gone, and all the while another prompt is full."""
    user = World(config()).engine()
    made = lossy_layout()
    tail = group("M", Kind.UNCOMPRESSED_TAIL, "snapshot")
    number = user.register(layout(*made.groups, tail, allow_approx=True))
    found = PrefixCensus(user.world.state)
    told = []
    for deed in (
        lambda: (user.store(number, PROMPT, END), user.store(number, [7, *PROMPT], END)),
        lambda: user.offload(number, PROMPT, END),
        lambda: user.restore(number, PROMPT, END),
        lambda: user.ok(Evict(Kind.COMPRESSED_KV, number, user.boundary(number, PROMPT, END), disk=True)),
    ):
        deed()
        found.look()
        told.append(states(found))
    assert told == [
        {"full": 2},
        {"full": 1, "compressed": 1, "approx": 1},
        {"full": 1, "full_restore": 1, "approx": 1},
        {"full": 1, "gone": 1},
    ]


def test_one_look_is_short(monkeypatch):
    """A look ends when it has cost enough, and nothing is told before a pass has ended."""
    monkeypatch.setattr(census, "_STEPS", 1)
    user = World().engine()
    number = user.register(layout(group("M", Kind.UNCOMPRESSED_TAIL, "snapshot")))
    for first in range(3):
        user.store(number, [first, *PROMPT], END)
    found, looks = PrefixCensus(user.world.state), 0
    while not states(found):
        found.look()
        looks += 1
    assert looks > 3
    assert states(found) == {"full": 3}
