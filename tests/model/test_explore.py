"""The short form of ``make explore``, and proof that the explorer sees what it looks for."""

from __future__ import annotations

import json
from functools import cache, partial

import pytest

from kvledger_storage import events
from kvledgerd.core import apply as applying
from kvledgerd.core import structure
from kvledgerd.core.holdings import Engine, Lease, Unit
from kvledgerd.core.index import Cell, Node
from kvledgerd.core.invariants import violations
from kvledgerd.core.placement.pools import Arena
from model.exploration import Exploration, main
from model.scope import SCOPES, STORED
from model.steps import Steps, follow

DEPTH = 3
# Events that only happen before the first state of an exploration, at the end of a daemon, to the log itself, to an
# engine of several processes (here each engine is one connection; test_core_tickets.py is about the others), or where
# kinds compete for arenas, of which every kind of the scopes has enough.
ELSEWHERE = {
    *("ArchiveRetired", "Checkpoint", "IncarnationStopped", "LayoutRegistered", "SegmentsArchived"),
    *("TicketJoined", "TicketsCommitted"),
    *("ArenaRekinded", "QuotaMoved", "QuotaSet"),
    *("EpochAdded", "KernelRetired"),
}
# No engine of the scopes captures a graph: random histories do (tests/property/graphs.py).
ELSEWHERE |= {"RecaptureClosed", "RecaptureOpened", "TopologyBroken", "TopologyChanged", "TopologyEnded"}
ELSEWHERE |= {"TopologyRegistered"}
# None of them sets pages of a device aside either.
ELSEWHERE |= {"DeviceFreed", "DevicePoolAdded", "DevicePoolEnded", "DevicePoolTaken"}
ELSEWHERE |= {"PagesAsked", "PagesFilled", "PagesGivenUp"}
# Nor does anybody tidy the disk, and no read is late.
ELSEWHERE |= {"RecordsDamaged", "RecordsMoved", "RestoreOverdue", "ScrubAdvanced", "ScrubSwitched", "TierChanged"}
ELSEWHERE |= {"RecordsFound"}  # a rebuild without the log
ELSEWHERE |= {"WriteDeclined"}  # whatever a daemon that stops would lose finds room on the disk of the third scope


def explored(name: str, depth: int) -> Exploration:
    """Explore a scope to a depth from each of its beginnings."""
    run = Exploration(SCOPES[name])
    while not run.exhausted and run.depth < depth:
        run.layer(limit=100_000)
    return run


whole = cache(partial(explored, depth=DEPTH))


@pytest.mark.parametrize("name", SCOPES)
def test_every_interleaving_keeps_every_promise(name):
    """To the stated depth no order of operations breaks an invariant, a lease or a committed object."""
    run = whole(name)
    assert run.found == []
    assert run.depth == DEPTH
    assert run.states > 1000


def test_scopes_reach_every_event():
    """Together the scopes bring every event of the core about, so none is proven only by not happening."""
    seen = {event for name in SCOPES for event in whole(name).steps.covered}
    known = {handled.__name__ for handled in applying._HANDLERS}  # the table of apply is the list of all events
    assert known - seen == ELSEWHERE


def test_bytes_are_verified_once_for_all_who_wait():
    """Two engines that look up what was adopted wait for one verification, whose answer serves both."""
    # Found by the explorer: with two, the second answer could be that bytes are wrong which the first had let out.
    steps = Steps(SCOPES["paged"])
    trace = (*SCOPES["paged"].beginnings["adopted"], "A acquire 0", "B acquire 0")
    waiting = follow(steps, trace)
    assert [what for what, _ in waiting.sides.pending.values()] == ["verify"]
    assert sorted(waiting.sides.parked) == [0, 1]
    assert len(follow(steps, (*trace, "job verify right")).state.leases) == 2


@pytest.mark.parametrize("last", [("A restore 0", "A settle 0"), ("A settle 0", "A restore 0")], ids=["late", "early"])
def test_an_offer_whose_blocks_are_gone_can_be_settled(last):
    """Keeping an offer that lies on disk keeps nothing, whether its blocks are evicted before or after."""
    # Found by the explorer: the event named a block that was pruned, and applying it would have ended the daemon.
    steps = Steps(SCOPES["paged"])
    stored = ("A reserve 1", "A put", "job copy ok", "A commit", "A acquire 1")
    after = follow(steps, (*SCOPES["paged"].beginnings["on disk"], *stored, *last)).state
    assert after.leases[min(after.leases)].cells() == []
    assert violations(after) == []


def test_a_restore_that_waits_for_an_arena_is_answered_at_its_deadline():
    """Who waits for memory to be made is told at the deadline that it is pending, and may ask again."""
    # Found by the explorer: the deadline counted for the read alone, so the request was parked without end.
    steps = Steps(SCOPES["paged"])
    trace = (*SCOPES["paged"].beginnings["on disk"], "restart none", "A joins", "A await 0")
    after = follow(steps, (*trace, "A expires"))
    assert after.sides.parked == {}
    assert [what for what, _ in after.sides.pending.values()] == ["arena"]


def test_values_know_every_field():
    """A field that the core adds to what it keeps has to join the value of a state, or equal states are not equal."""
    # No scope has a lossy tier, so nothing of a state is ever `approx`, and no record has one of the `precisions`
    kept = {
        Cell: "approx below damaged digest disk follows id kinds layout limbo lineage manifest marks memory node "
        "pins pooled precisions records residue residue_hash revisited states uncoupled unverified usage used words",
        Node: "boundaries cells children depth hash holds id parent",
        Lease: "blocks boundaries engine id layout node offers pools",
        Unit: "aborted approx boundary converts done engine filled first_block holder id jobs joined layout lineage "
        "node objects path pinned places prints residue residue_hash",
        Engine: "key leases name number pid pools silent tenant uid units",
        Arena: "bytes id kind live ready tenant",
    }
    assert {kind: sorted(kind.__slots__) for kind in kept} == {kind: names.split() for kind, names in kept.items()}


@pytest.fixture
def only_stored(monkeypatch):
    """Let exploration begin at a stored prompt alone, so that the shortest trace to a fault is known."""
    monkeypatch.setattr(SCOPES["paged"], "beginnings", {"stored": STORED})


@pytest.mark.usefixtures("only_stored")
def test_a_lease_that_pins_nothing_is_found(monkeypatch):
    """A look-up that keeps nothing where it is breaks an invariant, one step behind a stored prompt."""
    real = applying._HANDLERS[events.LookedUp]

    def careless(state, event):
        real(state, event)
        for cell in state.leases[event.lease].cells():
            cell.pins = 0

    monkeypatch.setattr(applying, "_HANDLERS", applying._HANDLERS | {events.LookedUp: careless})
    found = explored("paged", 1).found
    assert "has 0 pins and 1 holders" in found[0].what
    assert found[0].trace == ("(stored)", "A acquire 0")


@pytest.mark.usefixtures("only_stored")
def test_a_loss_that_no_event_names_is_found(monkeypatch):
    """A copy that goes without an event that says so is seen, though every count is right."""
    real = applying._HANDLERS[events.EngineHeard]

    def forgetful(state, event):
        real(state, event)
        for cell in [c for c in state.cells.values() if c.memory & 1][:1]:
            structure.drop_memory(state, [(cell, 1)])
            state.touch(cell)

    monkeypatch.setattr(applying, "_HANDLERS", applying._HANDLERS | {events.EngineHeard: forgetful})
    found = explored("paged", 1).found
    assert found[0].what.endswith("slot 0 is gone from memory and no event says so")
    assert found[0].trace == ("(stored)", "A silent")


def test_report_ends_with_one_json_object(capsys):
    """The last line of the output is for programs, and says how much was looked at."""
    assert main(["--depth", "1"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"states", "depth", "violations", "states_per_second"} <= last.keys()
    assert (last["depth"], last["violations"]) == (1, 0)
    assert last["states"] > 100


@pytest.mark.usefixtures("only_stored")
def test_report_of_a_violation_is_its_trace(capsys, monkeypatch):
    """What is wrong is printed with the numbered steps that lead to it, and the exit code says so."""
    lost = dict.fromkeys([events.EngineHeard], lambda state, event: state.nodes.clear())
    monkeypatch.setattr(applying, "_HANDLERS", applying._HANDLERS | lost)
    assert main(["--depth", "1", "--scope", "paged"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("VIOLATED in scope paged: "))
    assert lines[at + 1 : at + 3] == ["  0. (stored)", "  1. A silent"]
    assert json.loads(lines[-1])["violations"] == 1
