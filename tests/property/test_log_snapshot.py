"""A state that went through its snapshot is the same state, now and after every event that follows."""

import contextlib
import random
from pathlib import Path

import msgspec
import pytest

from kvledger_storage.events import decode
from kvledger_storage.snapshot import Snapshot, read_snapshots, write_snapshot
from kvledgerd.core.apply import apply
from kvledgerd.core.device_pools.device import Asked, DevicePool
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.holdings import ArenaJob, Engine, Lease, OffloadJob, RelocationJob, RestoreJob, Unit, VerifyJob
from kvledgerd.core.index import Cell, Node, Tree
from kvledgerd.core.invariants import violations
from kvledgerd.core.placement.pools import Arena, Pool
from kvledgerd.core.state import State
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.encode import encode_state
from kvledgerd.snapshots.plain import (
    MASKS,
    NUMBERS,
    Image,
    PlainArena,
    PlainAsked,
    PlainCell,
    PlainDevicePool,
    PlainEngine,
    PlainEpoch,
    PlainJob,
    PlainLease,
    PlainNode,
    PlainPool,
    PlainTree,
    PlainUnit,
)
from property.device_history import DeviceHistory
from property.test_core_histories import CONFIG, History
from support.log_simulation import PowerCutError, SimulatedLogIO

HOME = Path("/snapshots")
STEPS = 90
PLACES = 6


def replayed(state, raws):
    """Apply events to a state and return it."""
    for raw in raws:
        apply(state, decode(raw).event)
    return state


def try_history(seed, kind=History):
    """Cut one random history at several places, and go on from a snapshot at each; return how many cells they held."""
    history = kind(seed)
    history.run(STEPS)
    raws = history.world.log
    whole = encode_state(replayed(State(CONFIG), raws))
    cells = 0
    for cut in random.Random(seed).sample(range(len(raws) + 1), PLACES):
        state = replayed(State(CONFIG), raws[:cut])
        body = encode_state(state)
        again = decode_state(body, CONFIG)
        assert (again.digest(), again.recomputed_digest()) == (state.digest(), state.digest())
        assert violations(again) == []
        assert encode_state(again) == body
        assert encode_state(replayed(again, raws[cut:])) == whole
        cells += len(again.cells)
    return cells


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_a_state_outlives_its_snapshot(first):
    """Over 20 random histories, cut at six places each, snapshot and tail make the very state that the log makes."""
    assert sum(try_history(seed) for seed in range(first, first + 5)) > 50


@pytest.mark.parametrize("seeds", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_device_pools_outlive_a_snapshot(seeds):
    """The same over some histories in which engines have device pools."""
    assert sum(try_history(seed, DeviceHistory) for seed in range(seeds)) > 10 * seeds


@pytest.mark.slow
def test_two_hundred_histories_outlive_their_snapshots():
    """The same over 200 histories."""
    assert sum(try_history(seed) for seed in range(100, 300)) > 2000


DERIVED = {
    State: {"config", "layout_numbers", "tree_numbers", "restoring", "_dirty", "_digest"},
    Cell: {"below", "kinds", "pooled", "memory", "disk", "digest"},
    Arena: {"live"},
    Pool: {"page", "_starts", "_ends", "free_bytes", "live_bytes"},
    Node: {"depth", "children", "cells", "boundaries"},
    Unit: {"path"},
    DevicePool: {"id", "known", "places", "starts", "counts", "pins", "held", "cells"},
    Asked: {"path"},
}
BESIDE = {Cell: {"node", *MASKS}, Node: {"parent"}}
BESIDE_ROWS = {"node_trees", "node_parents", "cell_nodes", "masks"}
KEPT = [
    (Cell, PlainCell, set()),
    (Arena, PlainArena, set()),
    (Engine, PlainEngine, set()),
    (Lease, PlainLease, set()),
    (Unit, PlainUnit, set()),
    (Node, PlainNode, set()),
    (DevicePool, PlainDevicePool, {"order"}),
    (Asked, PlainAsked, set()),
    (Epoch, PlainEpoch, set()),
]


def attributes(kind):
    """Return the names of what an object of the core keeps."""
    return set(getattr(kind, "__slots__", ())) or set(vars(kind()))


@pytest.mark.parametrize(("kind", "plain", "added"), KEPT, ids=lambda value: getattr(value, "__name__", ""))
def test_nothing_is_forgotten(kind, plain, added):
    """Whatever an object of the core keeps is in the image or is known to follow from it."""
    kept = set(plain.__struct_fields__) - added

    assert attributes(kind) - DERIVED.get(kind, set()) - BESIDE.get(kind, set()) == kept


@pytest.mark.parametrize(("kind", "plain"), [(Cell, PlainCell), (Node, PlainNode)])
def test_rows_are_read_straight_into_the_core(kind, plain):
    """The first fields of a cell and of a node are those of their rows, name by name and type by type."""
    rows = [(field.name, field.type) for field in msgspec.structs.fields(plain)]

    assert [(field.name, field.type) for field in msgspec.structs.fields(kind)][: len(rows)] == rows


def test_no_part_of_the_state_is_forgotten():
    """Whatever the state, a pool, a tree or a job keeps is in the image or is known to follow from it."""
    assert attributes(Pool) - DERIVED[Pool] == {"arenas", "_by_size", "entries"}
    assert set(PlainPool.__struct_fields__) == {"tenant", "kind", "arenas", "free", "entries"}
    assert attributes(Tree) == {"id", "key", "root", "nodes"}
    kept = set(vars(State(CONFIG))) - DERIVED[State]
    assert kept - set(NUMBERS) == set(Image.__struct_fields__) - {"numbers"} - BESIDE_ROWS
    assert set(NUMBERS) < kept
    assert set(PlainTree.__struct_fields__) == {"number", "key", "root_holds"}
    jobs = [set(job.__slots__) for job in (ArenaJob, VerifyJob, OffloadJob, RestoreJob, RelocationJob)]
    fields = {"id", "arena", "objects", "boundary", "generation", "places", "void", "sources"}
    assert set.union(*jobs) == fields | {"asked", "promotion", "precisions"}
    assert set(PlainJob.__struct_fields__) == {
        *("what", "id", "objects", "number", "places", "void", "sources", "asked", "promotion", "precisions")
    }


def written_until(io, count):
    """Write snapshots until power goes; return how many writes returned."""
    done = 0
    with contextlib.suppress(PowerCutError):
        for seq in range(1, count + 1):
            body = b"%d" % seq * 300
            write_snapshot(io, HOME, Snapshot(log_id=bytes(16), seq=seq, chain=bytes(32), digest=seq, body=body))
            done = seq
    return done


def test_power_cuts_leave_whole_snapshots_only():
    """Cut at each operation of writing four in a row, every snapshot that is there is whole, the last one included."""
    whole = SimulatedLogIO()
    assert written_until(whole, 4) == 4
    for cut in range(1, whole.operations + 1):
        io = SimulatedLogIO()
        io.cut_at = cut
        done = written_until(io, 4)
        io.cut(random.Random(cut))
        found = list(read_snapshots(io, HOME, bytes(16)))
        assert all(isinstance(one, Snapshot) and one.body == b"%d" % one.seq * 300 for one in found)
        assert max((one.seq for one in found), default=0) >= done
