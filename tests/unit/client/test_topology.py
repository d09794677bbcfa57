"""Topologies as the client sees them: handles that outlive the hit, generations, windows, and what is asked."""

import gc

import pytest

from kvledger import AsyncCache, Cache
from kvledger.errors import CallerError, LeaseLost, NotResidentError, RecaptureError, TopologyLostError
from kvledger.mailbox import undoing
from kvledger.wire import replies, requests
from unit.client.fake import layout
from unit.client.test_hit import PAGE, TOKENS, acquired, fill, offer

REPORT = replies.TopologyReport(31, 3, 3 * PAGE)


@pytest.fixture
def graphs(daemon):
    """A fake daemon that takes topologies over a hit of two blocks and a state."""
    fill(daemon)
    daemon.answers |= {
        requests.Acquire: acquired(offer(32)),
        requests.RegisterTopology: replies.TopologyRegistered(REPORT),
        requests.ChangeTopology: REPORT,
        requests.CloseRecapture: REPORT,
        requests.Topologies: replies.TopologyList([REPORT]),
    }
    return daemon


def capture(cache, **fields):
    """Register a topology and release the hit."""
    with cache.acquire(cache.register(layout()), TOKENS) as hit:
        return cache.register_topology(hit, **fields)


def test_a_topology_lends_what_the_hit_handed_out(graphs, cache):
    """Its handles are those of the hit, and their buffers outlive the lease."""
    topology = capture(cache)
    assert [(h.group, h.first_token) for h in topology] == [("full", 0), ("full", 16), ("swa", 32)]
    assert bytes(topology["full"][1].buffer) == b"\2" * PAGE
    topology.check()
    topology.drop()
    with pytest.raises(TopologyLostError):
        _ = topology["full"][0].buffer


def test_only_some_groups_are_named_by_their_place_in_the_layout(graphs, cache):
    """The daemon hears indices, and the handles are those of the groups."""
    topology = capture(cache, groups=["swa"])
    assert graphs.asked(requests.RegisterTopology) == [
        requests.RegisterTopology([requests.TopologyPart(9, 0, [1])]),
    ]
    assert [h.group for h in topology] == ["swa"]
    topology.drop()


def test_moved_generations_say_that_the_graph_must_not_be_replayed(graphs, cache):
    """The check needs no answer of the daemon: the table in the arena tells."""
    topology = capture(cache)
    asked = len(graphs.seen)
    graphs.arena.set_generations([(1, 1, 99)])
    with pytest.raises(TopologyLostError, match="1 of 3 objects"):
        topology.check()
    assert len(graphs.seen) == asked
    topology.drop()


def test_maps_stay_when_the_connection_ends(graphs, cache):
    """Addresses that a graph reads stay mapped through a restart of the daemon, and the check goes on."""
    topology = capture(cache)
    buffers = [handle.buffer for handle in topology]
    graphs.restart()
    topology.refresh()
    topology.check()
    assert [bytes(buffer[:1]) for buffer in buffers] == [b"\1", b"\2", b"s"]
    topology.drop()


def test_what_is_not_resident_is_listed(graphs, cache):
    """The error names group, shard, place and state of what is not in memory, and counts the rest."""
    absent = [replies.ObjectInfo(4, 0, 1, 0, 0, 0, "ON_DISK", PAGE, b"", 0, 1)]
    graphs.answers[requests.RegisterTopology] = replies.NotResident(absent, 2)
    with pytest.raises(NotResidentError, match="3 objects not in memory") as caught:
        capture(cache)
    assert (caught.value.objects, caught.value.more) == (("full/0 of block 1: ON_DISK",), 2)


def test_a_window_is_opened_and_closed_around_changes(graphs, cache):
    """A change goes out inside the window, and after the block it is refused without asking."""
    topology = capture(cache)
    with topology.recapture() as window:
        with cache.acquire(cache.register(layout()), TOKENS) as hit:
            window.add(hit)
            window.remove(hit, groups=["swa"])
            window.replace(hit)
        assert [h.group for h in topology] == ["full", "full", "swa"]
    names = [type(one) for one in graphs.seen if "Recapture" in type(one).__name__ or "Change" in type(one).__name__]
    change = requests.ChangeTopology
    assert names == [requests.OpenRecapture, change, change, change, requests.CloseRecapture]
    assert [(len(one.add), len(one.remove), one.whole) for one in graphs.asked(change)] == [
        (1, 0, False),
        (0, 1, False),
        (1, 0, True),
    ]
    with pytest.raises(RecaptureError):
        window.add(hit)
    topology.drop()


def test_a_window_is_closed_by_an_exception_too(graphs, cache):
    """The exception comes through, and the daemon hears of the end of the window."""
    topology = capture(cache)
    with pytest.raises(ZeroDivisionError), topology.recapture():
        raise ZeroDivisionError
    assert len(graphs.asked(requests.CloseRecapture)) == 1
    topology.drop()


def test_a_window_that_was_closed_by_an_answer_that_got_lost_is_closed(graphs, cache):
    """Where the second attempt is told that the window is not open the report is asked for."""
    topology = capture(cache)
    graphs.answers[requests.CloseRecapture] = replies.Failed("recapture", "its window is not open", "topology", "")
    with topology.recapture():
        pass
    assert topology.objects == 3
    topology.drop()


def test_what_moved_leaves_the_handles_once_it_was_captured_anew(graphs, cache):
    """After a change with nothing lost the check is silent about the bytes that the graph no longer reads."""
    topology = capture(cache)
    graphs.arena.set_generations([(1, 1, 99)])
    with topology.recapture() as window, cache.acquire(cache.register(layout()), TOKENS) as hit:
        graphs.arena.set_generations([(1, 1, 5)])
        window.add(hit)
        topology.check()
    topology.drop()


def test_dropping_twice_asks_once(graphs, cache):
    """A topology that has ended by itself counts as dropped."""
    topology = capture(cache)
    graphs.answers[requests.DropTopology] = replies.Failed("topology_lost", "topology 31 is not held", "topology", "")
    topology.drop()
    topology.drop()
    assert len(graphs.asked(requests.DropTopology)) == 1


def test_a_refresh_tells_what_was_lost_or_that_it_has_ended(graphs, cache):
    """The daemon's report is taken over; without one the topology is lost."""
    topology = capture(cache)
    graphs.answers[requests.Topologies] = replies.TopologyList([replies.TopologyReport(31, 3, 3 * PAGE, lost=2)])
    topology.refresh()
    assert topology.lost == 2
    assert "2 lost" in repr(topology)
    graphs.answers[requests.Topologies] = replies.TopologyList([])
    with pytest.raises(TopologyLostError):
        topology.refresh()
    topology.drop()


def test_a_late_topology_is_dropped():
    """If the answer comes after its caller gave up, nobody knows the number, so the topology is dropped again."""
    assert undoing(replies.TopologyRegistered(REPORT)) == [requests.DropTopology(31)]
    assert undoing(REPORT) == []


def test_topologies_are_made_of_hits_that_are_held(graphs, cache):
    """A miss, a released hit and something else are refused before anybody is asked."""
    registered = cache.register(layout())
    with cache.acquire(registered, TOKENS) as hit:
        pass
    with pytest.raises(LeaseLost):
        cache.register_topology(hit)
    with pytest.raises(CallerError):
        cache.register_topology()
    with pytest.raises(CallerError):
        cache.register_topology("hit")
    graphs.answers[requests.Acquire] = replies.Acquired(0, [], [], 0, 0, [], [], [], [])
    with pytest.raises(CallerError), cache.acquire(registered, TOKENS) as miss:
        cache.register_topology(miss)
    assert graphs.asked(requests.RegisterTopology) == []


def test_a_topology_that_is_forgotten_warns(graphs):
    """Memory that stays pinned for as long as the process lives is worth a word."""
    with Cache.open(graphs.path) as cache:
        held = [capture(cache)]
        assert held[0].objects == 3
        with pytest.warns(ResourceWarning, match="call drop"):
            forget(held)


def forget(held):
    """Let go of what is held, and have it collected."""
    held.clear()
    gc.collect()


@pytest.mark.asyncio
async def test_the_asynchronous_topology_is_the_same(graphs):
    """Registering, changing and dropping are awaited; the check is not."""
    async with await AsyncCache.open(graphs.path) as cache:
        known = await cache.register(layout())
        async with await cache.acquire(known, TOKENS) as hit:
            topology = await cache.register_topology(hit)
            async with topology.recapture() as window:
                await window.replace(hit)
        topology.check()
        (found,) = await cache.topologies()
        assert found.number == topology.number
        await topology.drop()
