"""What is learnt about reuse: from the first look-up on, and told apart a step at a time once memory is short."""

import pytest
from blake3 import blake3

from kvledgerd.core.index import Node, new_cell, new_node
from kvledgerd.core.placement.orders import Order
from kvledgerd.core.placement.reuse import BUCKETS, MASK_WATCHING, RING, Reuse, bucket_of, drawn_by, name_of, new_mark

FAR, NEAR = 1000, 10


def see(reuse: Reuse, number: int) -> int:
    """Note a use of something in the sample, one page after the one before."""
    reuse.now += 1
    return reuse.see(number << 8)


def watched() -> Reuse:
    """Return what was seen of things that come back after 1,000 pages for the first time, and then soon or never."""
    reuse = Reuse()
    for number in range(8 * FAR):
        see(reuse, number)
        if number >= FAR and number % 2:
            see(reuse, number - FAR)
    return reuse


def test_what_was_seen_before_memory_was_short_counts_from_the_first_choice_on():
    """Where things come back late, what is young and was never used goes before what is about to be wanted."""
    reuse = watched()
    assert reuse.going == Reuse().going
    reuse.wake()
    young, due = bucket_of(NEAR), bucket_of(FAR)
    assert Reuse().ranks[young] > Reuse().ranks[due]
    assert reuse.ranks[young] < reuse.ranks[due]


def test_ages_count_alike_in_one_step_and_in_many():
    """However much memory is given out at once, the same is counted of what was seen before, also in a full sample."""
    once, often = Reuse(), Reuse()
    for reuse in (once, often):
        for number in range(RING + FAR):
            reuse.now += 0 if number % 30 else FAR
            reuse.see(number << 8)
            reuse.see(number // 2 * 3 << 8)
    for _ in range(30):
        often.now += 70 * FAR
        often.wake()
    before, once.now = once.digest(), often.now
    once.wake()
    assert before != once.digest() == often.digest()
    assert not once.is_torn()


def test_where_nothing_comes_back_the_oldest_goes_first():
    """That more was seen of young ages than of old ones is no reason to expect more of what is old."""
    reuse = Reuse()
    for number in range(0, 1600, 16):  # one in sixteen is watched
        reuse.now += 15
        see(reuse, number)
    reuse.wake()
    for number in range(10_000, 10_100):
        see(reuse, number)
    ranks = [reuse.ranks[bucket_of(age)] for age in range(1, 1600)]
    assert ranks == sorted(ranks, reverse=True)


def test_a_use_at_the_same_time_counts_once():
    """Look-ups between which no memory was given out are one use of what they share."""
    reuse = Reuse()
    see(reuse, 1)
    assert see(reuse, 1) == 1
    before = reuse.digest()
    assert [reuse.see(1 << 8), reuse.see(1 << 8)] == [1, 1]
    assert reuse.digest() == before


def test_the_sample_is_small_until_something_has_to_go():
    """Watching costs look-ups one block in sixteen; once memory is short all are in the sample if there is room."""
    reuse = Reuse()
    names = [bytes((*[0] * 8, last)) for last in range(256)]
    assert sum(map(reuse.samples, names)) == 256 // (MASK_WATCHING + 1)
    reuse.wake()
    assert sum(map(reuse.samples, names)) == 256


def test_the_sample_stays_whole_where_no_name_can_be_left_out():
    """Where chance leaves out none of the names, the oldest go of more than the sample holds."""
    reuse = Reuse()
    reuse.wake()
    reuse.span = 2 * RING
    for number in range(RING + 10):
        see(reuse, number)
    assert reuse.head - reuse.tail == RING
    assert not reuse.is_torn()
    assert [see(reuse, number) for number in (RING + 5, RING + 5, 0)] == [1, 2, 0]


@pytest.mark.parametrize("behind", [b"", bytes(32)])
def test_short_prompts_leave_room_for_long_ones(behind):
    """Of more prompts that end behind one block, or before it, than the sample holds, it keeps as few as of others."""
    reuse, root = Reuse(), new_node(1, None, behind)
    reuse.wake()
    reuse.now, reuse.span = 1, RING

    def known(node: Node, residue_hash: bytes) -> int:
        drawn = reuse.samples(drawn_by(node, residue_hash))
        return reuse.see(name_of(1, node, residue_hash)) if drawn else 0

    long = [new_node(number, root, blake3(b"long%d" % number).digest()) for number in range(200)]
    assert sum(known(node, b"") for node in long) == 0
    for number in range(2 * RING):
        known(root, blake3(b"short%d" % number).digest())
    reuse.now += 1
    assert sum(known(node, b"") for node in long) > 10


def test_cells_are_told_apart_some_at_a_time():
    """When something has to go for the first time the oldest are sorted, and the rest waits behind, oldest first."""
    reuse, node = Reuse(), new_node(1, None, b"")
    order, count = Order(reuse), 10_000
    for number in range(count):
        reuse.now += 1
        order.put(new_cell(number, node, 1, 1, -1, b""), new_mark(reuse.now, 0), first=False)
    reuse.wake()
    order.grow_older()
    told = [index for index, _ in order.packed()[1] if index >= 0]
    waiting = dict(order.packed()[1])[-1]
    assert 0 < count - len(waiting) < count // 2
    assert order.usual[-len(waiting) :] == list(range(count - len(waiting), count))
    assert all(index < BUCKETS for index in told)
    while -1 in dict(order.packed()[1]):
        order.grow_older()
    assert sorted(order.usual) == list(range(count))
    assert not any(order.is_misplaced(number) for number in range(count))
