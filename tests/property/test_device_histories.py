"""Random histories with device pools: the invariants hold after every event, and leased device bytes are as filled."""

import pytest

from property.device_history import DeviceHistory
from property.test_core_histories import STEPS

SEEDS = 15


@pytest.mark.parametrize("seed", [*range(SEEDS), *(pytest.param(n, marks=pytest.mark.slow) for n in range(SEEDS, 600))])
def test_no_history_with_device_pools_breaks_an_invariant(seed):
    """After any history a replay makes the same state, and with the engines go all pools and what was in them."""
    history = DeviceHistory(seed)
    history.run(STEPS)
    world = history.world
    assert pools(world.replayed()) == pools(world.state)
    history.check_end()
    assert (world.state.device_pools, world.state.asked) == ({}, {})
    assert not any(cell.pooled for cell in world.state.cells.values())


@pytest.mark.slow
def test_device_histories_reach_what_they_are_about():
    """Over some seeds pages are given, refused, filled, freed and kept, victims are named, and pools are dropped."""
    found = {}
    for seed in range(30, 50):
        history = DeviceHistory(seed)
        history.run(STEPS)
        for what, count in history.outcomes.items():
            found[what] = found.get(what, 0) + count
    wanted = ("pages given", "victims named", "pages refused", "resident", "freed", "kept", "in use", "dropped", "hit")
    wanted += ("captured", "found again")
    assert min(found.get(what, 0) for what in wanted) > 0, found


def pools(state):
    """Everything about device pools that a decision may depend on."""
    return [
        (pool.id, pool.engine, pool.copies, list(pool.cells.items()), pool.pins, pool.held, pool.counts,
         {group: places.extents() for group, places in pool.places.items()})
        for pool in state.device_pools.values()
    ], {asked.id: (asked.offsets, [cell.id for cell in asked.pinned]) for asked in state.asked.values()}  # fmt: skip
