"""Which boundary is chosen: tokens, then exactness, then readiness; and time, where both rates are known."""

import pytest

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code, Exactness
from kvledger.wire.replies import Restored
from kvledgerd.core.lookup.pace import REMEMBERED_MICROS, note_restore, restored_per_second
from kvledgerd.core.state import State
from support.layouts import compressed, pick, recurrent
from support.world import World, group, layout

PROMPT = list(range(600))


def replayed(tokens, **fields):
    """A state that so many recomputed tokens rebuild."""
    kind = fields.pop("kind", Kind.UNCOMPRESSED_TAIL)
    return group("R", kind, Form.SNAPSHOT, exact_replay_tokens=tokens, **fields)


def one_in_memory_two_on_disk(micros=0):
    """A prompt of two blocks: one boundary in memory, the other on disk, which gave all of it back in `micros`."""
    user = World().engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 256)
    user.store(number, PROMPT, 512)
    user.world.restore_micros = micros
    user.offload(number, PROMPT, 512)
    assert isinstance(user.restore(number, PROMPT, 512), Restored)
    user.offload(number, PROMPT, 512)
    user.world.restore_micros = 0
    user.restore(number, PROMPT, 256)
    return user, number


def offered(answer):
    """Position and readiness of each offer, best first."""
    return [(offer.position, offer.ready) for offer in answer.offers]


def test_without_rates_what_lies_on_disk_is_worth_a_restore():
    """Where the caller does not say how fast it computes, or no restore was measured, tokens alone are compared."""
    user, number = one_in_memory_two_on_disk(micros=10**9)
    assert offered(user.acquire(number, PROMPT)) == [(512, False), (256, True)]
    user, number = one_in_memory_two_on_disk()
    assert offered(user.acquire(number, PROMPT, recompute=1)) == [(512, False), (256, True)]


def test_beside_a_block_on_disk_the_residue_in_memory_is_offered():
    """Whoever can not wait for the disk resumes at the residue, though the block on disk saves more tokens."""
    user = World().engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT[:300], 300)
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512, drop=False)
    user.evict(number, PROMPT, 512, "M", block=-1)
    assert offered(user.acquire(number, PROMPT)) == [(512, False), (300, True)]


@pytest.mark.parametrize(("recompute", "best"), [(100, 512), (1_000_000, 256)])
def test_a_restore_that_costs_more_than_recomputing_is_not_offered(recompute, best):
    """With a disk that needs half a second, a slow engine restores the second block and a fast one computes it."""
    user, number = one_in_memory_two_on_disk(micros=500_000)
    answer = user.acquire(number, PROMPT, recompute=recompute)
    assert answer.offers[0].position == best
    assert answer.restorable == [256, 512]
    assert [c.code for c in answer.cuts if c.end == 512] == [Code.RESTORE_COST] * (best == 256)


def test_a_dear_restore_alone_is_a_miss_with_its_reason():
    """Where nothing lies in memory and reading takes longer than computing everything, nothing is offered."""
    user = World().engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 512)
    user.world.restore_micros = 10_000_000
    user.offload(number, PROMPT, 512)
    user.restore(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    answer = user.acquire(number, PROMPT, recompute=1_000_000)
    assert (answer.lease, answer.offers) == (0, [])
    assert Code.RESTORE_COST in {cut.code for cut in answer.cuts}


@pytest.mark.parametrize(("recompute", "best"), [(100, 512), (512, 256)])
def test_of_two_restores_the_one_that_saves_more_time_is_taken(recompute, best):
    """At 256 a small state lies on disk, at 512 the rows of a block too, which cost a second at a MiB a second."""
    user = World().engine()
    number = user.register(layout(compressed(page_bytes=1 << 20), recurrent()))
    user.store(number, PROMPT, 256)
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 256, drop=False)
    user.offload(number, PROMPT, 512)
    user.world.restore_micros = 1_000_000
    user.restore(number, PROMPT, 256)
    user.evict(number, PROMPT, 256, "M", block=-1)
    answer = user.acquire(number, PROMPT, recompute=recompute)
    assert offered(answer) == [(best, False)]
    assert answer.restorable == [256, 512]


def test_an_exact_residue_goes_before_a_block_that_saves_as_much_by_a_replay():
    """Of boundaries that save equally many tokens the exact one is chosen, also where it lies inside a block."""
    user = World().engine()
    number = user.register(layout(compressed(per_row=1), replayed(56)))
    user.store(number, PROMPT, 512, boundary=False)
    user.store(number, PROMPT, 456, first_block=1)
    answer = user.acquire(number, PROMPT, replay=True)
    found = [(o.position, o.replay, o.exactness) for o in answer.offers]
    assert found == [(456, 0, Exactness.EXACT), (512, 56, Exactness.REPLAY)]


def test_a_replay_is_offered_only_where_the_prompt_is_longer():
    """Each boundary has its own reason: at 256 the replay is as long as the prompt, at 512 only a restore lacks."""
    user = World().engine()
    number = user.register(layout(compressed(), replayed(300)))
    user.store(number, PROMPT, 512, boundary=True)
    user.offload(number, PROMPT, 512)
    user.evict(number, PROMPT, 512, "R", block=-1, disk=True)
    answer = user.acquire(number, PROMPT, replay=True, restore=False)
    reasons = {cut.end: (cut.start, cut.code) for cut in answer.cuts}
    assert (reasons[256], reasons[512]) == ((0, Code.TAIL_MISSING), (256, Code.ON_DISK))


def test_a_boundary_whose_state_is_replayed_can_be_restored():
    """An offer on disk of which only a replayed state lacks is kept: a restore brings what there is of it."""
    user = World().engine()
    number = user.register(layout(compressed(), replayed(100)))
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    user.evict(number, PROMPT, 512, "R", block=-1, disk=True)
    (offer,) = user.acquire(number, PROMPT, replay=True).offers
    assert (offer.position, offer.replay, offer.ready) == (512, 100, False)
    assert isinstance(user.restore(number, PROMPT, 512), Restored)
    assert user.acquire(number, PROMPT, replay=True).offers[0].ready


def test_the_rate_of_restores_is_in_the_log():
    """A replay of the log and the world that wrote it know one rate, and so choose alike."""
    user, _ = one_in_memory_two_on_disk(micros=250_000)
    again = user.world.replayed()
    assert restored_per_second(again) == restored_per_second(user.world.state) > 0
    assert again.digest() == user.world.state.digest()


def test_restores_of_long_ago_count_less():
    """A disk that became ten times slower is believed to be so after some restores; what was not measured is not."""
    state = State(World().config)
    note_restore(state, 10**9, REMEMBERED_MICROS // 2)
    fast = restored_per_second(state)
    note_restore(state, 0, 10**6)
    note_restore(state, 10**6, 0)
    assert restored_per_second(state) == fast
    for _ in range(8):
        note_restore(state, 10**8, REMEMBERED_MICROS // 2)
    assert fast // 10 <= restored_per_second(state) < fast // 8


def test_an_offer_on_disk_tells_what_it_costs():
    """The bytes of an offer on disk are those that its restore reads; the time follows once a restore was measured."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM"))
    prompt = list(range(600))
    user.store(number, prompt, 512)
    user.offload(number, prompt, 512)
    first = user.acquire(number, prompt).offers[0]
    world.restore_micros = 2_000_000
    brought = user.restore(number, prompt, 512)
    assert (first.ready, first.read_bytes, first.read_ms) == (False, brought.bytes, 0)
    user.offload(number, prompt, 512)
    assert user.acquire(number, prompt).offers[0].read_ms == 2000
    user.restore(number, prompt, 512)
    there = user.acquire(number, prompt).offers[0]
    assert (there.ready, there.read_bytes, there.read_ms) == (True, 0, 0)
