"""Hits counted apart in tokens: by hash, recoverable, ready; of the whole and by kind, from the log's own events."""

from kvledger.wire.requests import Acquire, Offload, Settle
from kvledger_storage.events import LookedUp, decode
from kvledgerd.core.commands import Ask
from kvledgerd.loop.hit_tokens import HitTokens
from kvledgerd.loop.live_core import LiveCore
from support.layouts import compressed, pick, window
from support.world import World, layout

PROMPT = list(range(600))


def counted(user):
    """Return what the log's look-ups add up to."""
    hits = HitTokens()
    for raw in user.world.log:
        event = decode(raw).event
        if isinstance(event, LookedUp):
            hits.count(event, "default")
    return hits.counters()


def _asked(user, body):
    return Ask(user.caller, body)


def three(counters, kind=""):
    """Return hash, recoverable and ready tokens, of the whole or of a kind."""
    end = f".{kind}" if kind else ""
    return tuple(counters[f"{name}_hit_tokens{end}"] for name in ("hash", "recoverable", "ready"))


def test_a_whole_hit_counts_alike_in_all_three():
    """What is complete in memory is claimed by hash, recoverable and ready, of each kind too."""
    user = World().engine()
    number = user.register(layout(compressed(), window()))
    user.store(number, PROMPT, 512)
    user.acquire(number, PROMPT)
    counters = counted(user)
    assert three(counters) == three(counters, "COMPRESSED_KV") == three(counters, "SWA_WINDOW") == (512, 512, 512)


def test_a_kind_that_lacks_takes_the_whole_with_it_and_no_other_kind():
    """Without its window nothing of a hash hit is recoverable, though the rows alone would carry all of it."""
    user = World().engine()
    number = user.register(layout(compressed(), window()))
    user.store(number, PROMPT, 512)
    user.evict(number, PROMPT, 512, "S")
    user.acquire(number, PROMPT)
    counters = counted(user)
    assert three(counters) == (512, 0, 0)
    assert three(counters, "COMPRESSED_KV") == (512, 512, 512)
    assert three(counters, "SWA_WINDOW") == (512, 0, 0)


def test_what_lies_on_disk_is_recoverable_and_not_ready():
    """After an offload that drops memory the hit is as long as before, and none of it is ready."""
    user = World().engine()
    number = user.register(layout(compressed(), window()))
    user.store(number, PROMPT, 512)
    user.ok(Offload(number, user.boundary(number, PROMPT, 512), drop_memory=True))
    user.acquire(number, PROMPT)
    counters = counted(user)
    assert three(counters) == three(counters, "SWA_WINDOW") == (512, 512, 0)


def test_what_no_hash_claims_is_not_counted():
    """A prompt of which nothing is known adds nothing."""
    user = World().engine()
    user.acquire(user.register(layout(compressed(), window())), PROMPT)
    assert three(counted(user)) == (0, 0, 0)


def test_a_boundary_inside_a_block_counts_what_it_adds_once_it_is_kept():
    """What a client settles on inside a block adds the tokens behind what lay ready, once; a block's end adds none."""
    user = World().engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 512)
    user.store(number, PROMPT, 600)
    core = LiveCore(user.world.state)
    for keeps in (600, 512):
        found = core.decide(_asked(user, Acquire(number, 700, user.boundary(number, [*PROMPT, *range(100)]).hashes)))
        for event in found.events:
            core.apply(event)
        offers = [offer.position for offer in found.reply.offers]
        assert offers[:2] == [600, 512]
        for event in core.decide(_asked(user, Settle(found.reply.lease, offers.index(keeps)))).events:
            core.apply(event)
    assert core.hits.counters()["residue_hit_tokens"] == 88
    assert core.hits.counters("default")["residue_hit_tokens"] == 88
    assert three(core.hits.counters()) == (1024, 1024, 1024)
