"""Damage is called damage: what is gone because its bytes were wrong is told from what was merely dropped."""

from __future__ import annotations

import pytest

from kvledger.kinds import Form, Kind
from kvledger.wire.replies import Failed
from support.layouts import pick
from support.world import World, group, layout

PROMPT = list(range(640))
BOUNDARY = 639
SNAPSHOTS = layout(
    group("C", Kind.COMPRESSED_KV, tokens_per_row=4),
    group("X", Kind.INDEXER_STATE, tokens_per_row=4, coupled_to="C"),
    group("W", Kind.SWA_WINDOW, Form.SNAPSHOT, window=128),
    group("T", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT, coupled_to="C"),
    block_tokens=128,
)


def reason(user, number, end, prompt=PROMPT):
    """Return layer, group and code of the cut that ends at a boundary."""
    cuts = user.acquire(number, prompt).cuts
    return next((c.layer.value, c.group, c.code.value) for c in cuts if c.end == end)


def on_disk(user, number, end, name):
    """Return where the record of a group's last object lies, once its boundary went to disk."""
    before = set(user.world.disk)
    user.offload(number, PROMPT, end)
    mark = f"{name}/".encode()
    return max(at for at, data in user.world.disk.items() if at not in before and data.startswith(mark))


@pytest.mark.parametrize("name", "CXWT")
def test_a_damaged_record_is_named_with_its_group(name):
    """A record that came off disk with other bytes makes its boundary fall at layer 4, and so does a later look-up."""
    user = World().engine()
    number = user.register(SNAPSHOTS)
    user.store(number, PROMPT, BOUNDARY)
    user.world.disk[on_disk(user, number, BOUNDARY, name)] = b"rotten"

    assert isinstance(user.restore(number, PROMPT, BOUNDARY), Failed)
    assert reason(user, number, BOUNDARY) == (4, name, "bytes_damaged")
    assert reason(user, number, BOUNDARY) == (4, name, "bytes_damaged")


@pytest.mark.parametrize("name", "CSX")
def test_a_damaged_page_of_a_block_is_named(name):
    """Rows and paged windows inside a block fall at layer 4 too, and at every boundary that needs them."""
    user = World().engine()
    number = user.register(pick("CXS"))
    user.store(number, PROMPT, 512)
    user.world.disk[on_disk(user, number, 512, name)] = b"rotten"

    assert isinstance(user.restore(number, PROMPT, 512), Failed)
    assert reason(user, number, 512) == (4, name, "bytes_damaged")


def test_memory_found_wrong_is_named():
    """Memory that outlived a daemon and has other bytes now is damage, not an eviction."""
    user = World().engine()
    number = user.register(SNAPSHOTS)
    user.store(number, PROMPT, BOUNDARY)
    wrong = next(at for at, data in user.world.memory.items() if data.startswith(b"W/"))
    user.world.restart()
    user = user.world.engine("another")
    number = user.register(SNAPSHOTS)
    user.world.memory[wrong] = b"rotten"

    assert reason(user, number, BOUNDARY) == (4, "W", "bytes_damaged")


def test_what_was_stored_anew_is_damaged_no_more():
    """After a new commit the boundary is usable; evicting it then is an eviction."""
    user = World().engine()
    number = user.register(SNAPSHOTS)
    user.store(number, PROMPT, BOUNDARY)
    user.world.disk[on_disk(user, number, BOUNDARY, "W")] = b"rotten"
    user.restore(number, PROMPT, BOUNDARY)
    user.store(number, PROMPT, BOUNDARY)

    assert [offer.position for offer in user.acquire(number, PROMPT).offers] == [BOUNDARY]
    user.leave()
    user = user.world.engine("another")
    number = user.register(SNAPSHOTS)
    user.evict(number, PROMPT, BOUNDARY, "W", block=-1, disk=True)
    assert reason(user, number, BOUNDARY) == (3, "W", "window_missing")


def test_what_was_evicted_is_not_called_damaged():
    """A tail that was dropped on request falls at layer 3."""
    user = World().engine()
    number = user.register(SNAPSHOTS)
    user.store(number, PROMPT, BOUNDARY)
    user.evict(number, PROMPT, BOUNDARY, "T", block=-1)

    assert reason(user, number, BOUNDARY) == (3, "T", "tail_missing")


def test_dropped_rows_are_no_mismatch_beside_another_model():
    """Where this layout's rows were evicted and another's lie, its own boundary falls for want of rows."""
    user = World().engine()
    rows = layout(
        group("R", Kind.COMPRESSED_KV), group("W", Kind.SWA_WINDOW, Form.SNAPSHOT, window=128), block_tokens=128
    )
    number, other = user.register(rows), user.register(SNAPSHOTS)
    for each in (number, other):
        user.store(each, PROMPT, BOUNDARY)
    user.evict(number, PROMPT, BOUNDARY, "R", block=1)

    assert reason(user, number, BOUNDARY) == (3, "R", "rows_missing")


def test_damage_is_named_where_nothing_else_is_left():
    """The reason outlives the last object of its boundary, until the boundary is stored anew."""
    world = World()
    user = world.engine()
    number = user.register(layout(group("S", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT), block_tokens=4))
    user.store(number, [1, 2, 3, 4], 4)
    world.memory = dict.fromkeys(world.memory, b"rotten")
    world.restart()
    user = world.engine("next")

    assert next(c.code.value for c in user.acquire(number, [1, 2, 3, 4, 5]).cuts) == "bytes_damaged"
    assert next(c.code.value for c in user.acquire(number, [1, 2, 3, 4, 5]).cuts) == "bytes_damaged"

    user.store(number, [1, 2, 3, 4], 4)

    assert user.acquire(number, [1, 2, 3, 4, 5]).usable_tokens == 4
    assert world.replayed().digest() == world.state.digest()
