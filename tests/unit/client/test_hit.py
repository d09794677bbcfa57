"""Hits: which offer is kept, which handles it has, and when it is lost."""

import pytest

from kvledger.errors import CallerError, LeaseLost, ProtocolError
from kvledger.hashing import ChainHasher, token_bytes
from kvledger.kinds import Kind
from kvledger.verdict import Code, Cut, Exactness, Layer
from kvledger.wire import replies, requests
from kvledger.wire.replies import Acquired, HandleRun, Offer
from unit.client.fake import BLOCK, ROOT_KEY, layout

PAGE = 4096
TOKENS = list(range(100, 140))  # two blocks and a residue of 8


def rows(count, generation=5, arena=7):
    """Return a run of `count` row objects, one block each, from the start of the arena."""
    return HandleRun(0, 0, 0, BLOCK, BLOCK, count, arena, 0, PAGE, PAGE, generation)


def state(position, offset=8 * PAGE, generation=6):
    """Return a run of one snapshot at a position."""
    return HandleRun(1, 0, position, 0, 0, 1, 7, offset, 0, PAGE, generation)


def acquired(*offers, row_count=2, **changes):
    """Return a verdict."""
    fields = {"hash_tokens": 32, "usable_tokens": 32, "restorable": [32], "coverage": [32, 32], "wanted": [32, 39, 40]}
    return Acquired(9, list(offers), [rows(row_count)], **(fields | {"cuts": []} | changes))


def offer(position, residue=0, tokens=TOKENS, **changes):
    """Return an offer whose residue is that of `tokens`."""
    digest = b""
    if residue:
        hasher = ChainHasher(ROOT_KEY, BLOCK)
        packed = token_bytes(tokens[:position])
        digest = hasher.residue(hasher.blocks(packed)[-32:] or hasher.root(), packed[-4 * residue :])
    return Offer(position, residue, digest, Exactness.EXACT, 0, [state(position)], **changes)


def fill(daemon):
    """Place three blocks of rows and one snapshot."""
    for block in range(3):
        daemon.place(block * PAGE, bytes([block + 1]) * PAGE, 5)
    daemon.place(8 * PAGE, b"s" * PAGE, 6)


def test_bytes_without_copy(daemon, cache):
    """A handle's buffer is a read-only view of the arena, and later bytes show through it."""
    fill(daemon)
    daemon.answers[requests.Acquire] = acquired(offer(32))
    with cache.acquire(cache.register(layout()), TOKENS) as hit:
        first, second = hit["full"]
        assert bytes(second.buffer) == b"\2" * PAGE
        assert first.buffer.readonly
        daemon.arena.view(0, 1)[:] = b"x"
        assert first.buffer[0] == ord("x")
        assert [(h.group, h.first_token, h.tokens) for h in hit] == [("full", 0, 16), ("full", 16, 16), ("swa", 32, 0)]


def test_rows_end_at_the_boundary(daemon, cache):
    """Rows of blocks above the chosen boundary are not part of the hit."""
    daemon.answers[requests.Acquire] = acquired(offer(16), row_count=3)
    with cache.acquire(cache.register(layout()), TOKENS) as hit:
        assert [h.first_token for h in hit["full"]] == [0]
        assert hit.tokens == 16
        assert hit.wanted == (32, 39, 40)


def test_first_matching_offer_is_settled(daemon, cache):
    """Of the offers the first whose residue is that of the prompt is kept, and the daemon is told without waiting."""
    foreign = offer(38, 6, tokens=[*TOKENS[:32], *range(50)])
    daemon.answers[requests.Acquire] = acquired(foreign, offer(37, 5), offer(32))
    with cache.acquire(cache.register(layout()), TOKENS) as hit:
        assert hit.tokens == 37
    cache.status()
    assert daemon.asked(requests.Settle) == [requests.Settle(9, 1)]
    assert daemon.asked(requests.Release) == [requests.Release(9)]


def test_residue_before_the_first_block(daemon, cache):
    """A boundary before the first block hangs on the root of the chain."""
    daemon.answers[requests.Acquire] = acquired(offer(7, 7), row_count=0)
    with cache.acquire(cache.register(layout()), TOKENS[:9]) as hit:
        assert hit.tokens == 7
        assert hit["full"] == []


def test_no_offer_of_this_prompt(daemon, cache):
    """If all offers belong to other prompts the hit is a miss, says so and gives the lease back."""
    daemon.answers[requests.Acquire] = acquired(offer(38, 6, tokens=[*TOKENS[:32], *range(50)]))
    hit = cache.acquire(cache.register(layout()), TOKENS)
    cache.status()
    assert not hit
    assert "no boundary offered is one of this prompt" in hit.why
    assert list(hit) == []
    assert daemon.asked(requests.Release) == [requests.Release(9)]


def test_minimum_holds_for_residues(daemon, cache):
    """An offer below the caller's minimum is not taken, whatever the daemon thinks of the best one."""
    daemon.answers[requests.Acquire] = acquired(offer(32))
    assert not cache.acquire(cache.register(layout()), TOKENS, minimum=33)


def test_why_is_for_people(daemon, cache):
    """A miss tells in one line what came of it and in one line each what cut it."""
    cut = Cut(0, 32, Layer.STATE, "swa", Kind.SWA_WINDOW, Code.WINDOW_MISSING, "no state at 32")
    miss = Acquired(0, [], [], 32, 0, [], [32, 0], [], [cut], 2)
    daemon.answers[requests.Acquire] = miss
    hit = cache.acquire(cache.register(layout()), TOKENS)
    assert hit.why.splitlines() == [
        "0 of 40 tokens usable, 32 by hash alone",
        "[0, 32) layer 3 STATE swa (SWA_WINDOW) window_missing: no state at 32",
        "and 2 more cuts",
    ]
    assert hit.coverage == {"full": 32, "swa": 0}
    assert repr(hit) == "<Hit miss, 0 of 40 tokens, exact>"


def test_moved_generation_is_found(daemon, cache):
    """Leaving the block raises if bytes that were lent have been reused meanwhile."""
    fill(daemon)
    daemon.answers[requests.Acquire] = acquired(offer(32))
    hit = cache.acquire(cache.register(layout()), TOKENS)

    def read():
        with hit:
            assert bytes(hit["full"][0].buffer)
            daemon.arena.set_generations([(0, 1, 99)])

    with pytest.raises(LeaseLost, match="full/0"):
        read()
    cache.status()
    assert daemon.asked(requests.Release) == [requests.Release(9)]


def test_only_lent_handles_are_compared(daemon, cache):
    """A generation that moves under a handle nobody looked at is no reason to drop the rest."""
    fill(daemon)
    daemon.answers[requests.Acquire] = acquired(offer(32))
    with cache.acquire(cache.register(layout()), TOKENS) as hit:
        assert bytes(hit["swa"][0].buffer) == b"s" * PAGE
        daemon.arena.set_generations([(0, 1, 99)])


def test_nothing_is_lent_after_release(daemon, cache):
    """A released hit lends nothing, and releasing it again is nothing."""
    daemon.answers[requests.Acquire] = acquired(offer(32))
    hit = cache.acquire(cache.register(layout()), TOKENS)
    handle = hit["full"][0]
    assert repr(handle) == "<Handle full/0 [0, 16): 4096 bytes>"
    hit.release()
    hit.release()
    with pytest.raises(LeaseLost, match="released"):
        handle.buffer  # noqa: B018 - looking is what fails
    assert repr(hit) == "<Hit released, 32 of 40 tokens, exact>"
    cache.status()
    assert len(daemon.asked(requests.Release)) == 1


def test_unknown_group_is_named(daemon, cache):
    """Asking a hit for a group that the layout lacks names the ones it has."""
    daemon.answers[requests.Acquire] = acquired(offer(32))
    with cache.acquire(cache.register(layout()), TOKENS) as hit, pytest.raises(CallerError, match="full, swa"):
        hit["indexer"]


def test_run_outside_the_layout_is_refused(daemon, cache):
    """A handle of a group that the layout lacks is an error of the daemon, and the lease is given back."""
    bad = acquired(offer(32))
    bad.rows[0] = HandleRun(7, 0, 0, BLOCK, BLOCK, 1, 7, 0, PAGE, PAGE, 5)
    daemon.answers[requests.Acquire] = bad
    registered = cache.register(layout())
    with pytest.raises(ProtocolError, match="group 7"):
        cache.acquire(registered, TOKENS)
    cache.status()
    assert daemon.asked(requests.Release) == [requests.Release(9)]


def test_lost_descriptor_is_asked_for(daemon, cache):
    """If an arena's descriptor did not come, the client asks for it again and goes on."""
    fill(daemon)
    registered = cache.register(layout())

    def forget(peer, _):
        peer.sent.add(7)
        return acquired(offer(32))

    daemon.answers[requests.Acquire] = forget
    with cache.acquire(registered, TOKENS) as hit:
        assert bytes(hit["full"][0].buffer) == b"\1" * PAGE
    assert daemon.asked(requests.Arenas) == [requests.Arenas([7])]


def test_descriptor_that_never_comes(daemon, cache):
    """If it does not come even then, the error names the arena and the likely limit."""
    daemon.answers[requests.Acquire] = acquired(offer(32))
    daemon.send_arena = lambda _: None
    registered = cache.register(layout())
    with pytest.raises(ProtocolError, match=r"arenas \[7\].*ulimit"):
        cache.acquire(registered, TOKENS)


def test_disk_is_restored_first(daemon, cache):
    """An offer that lies on disk is restored, and the prompt is looked up again before anything is lent."""
    ready = acquired(offer(32))
    on_disk = acquired(offer(32, ready=False))
    daemon.answers[requests.Acquire] = lambda _, request: on_disk if request.restore else ready
    with cache.acquire(cache.register(layout()), TOKENS, wait=3) as hit:
        assert hit.tokens == 32
    names = daemon.types()
    assert names[names.index("Acquire") :][:4] == ["Acquire", "Restore", "Release", "Acquire"]


def test_pending_takes_what_is_ready(daemon, cache):
    """Without time to wait, the best boundary in memory is taken, and the hit says that a restore is pending."""
    daemon.answers[requests.Acquire] = acquired(offer(32, ready=False), offer(16))
    daemon.answers[requests.Restore] = replies.Pending(4, 100, 400, 7, 9)
    with cache.acquire(cache.register(layout()), TOKENS, wait=0) as hit:
        assert hit.tokens == 16
        assert hit.pending == replies.Pending(4, 100, 400, 7, 9)
        assert "pending: restore 4 has read 100 of 400 objects, 7 of 9 bytes" in hit.why
    assert len(daemon.asked(requests.Restore)) == 1


def test_pending_is_asked_again(daemon, cache):
    """While time is left a pending restore is asked for again, and a miss says pending when it is over."""
    pending = replies.Pending(4, 100, 400, 7, 9)
    answers = iter([pending, pending, replies.Restored(2, 8192)])
    daemon.answers[requests.Acquire] = acquired(offer(32, ready=False))
    daemon.answers[requests.Restore] = lambda *_: next(answers)
    registered = cache.register(layout())
    assert not cache.acquire(registered, TOKENS, wait=60)
    assert len(daemon.asked(requests.Restore)) == 3
    daemon.answers[requests.Restore] = pending
    hit = cache.acquire(registered, TOKENS, wait=0.05)
    assert not hit
    assert hit.why.splitlines() == [
        "0 of 40 tokens usable, 32 by hash alone",
        "pending: restore 4 has read 100 of 400 objects, 7 of 9 bytes",
    ]


@pytest.mark.parametrize("code", ["service", "capacity", "limit", "commit_refused", "not_found"])
def test_p31_p35_failed_restore_is_a_reason(daemon, cache, code):
    """A restore that fails, or whose boundary went since the verdict, is no exception but a miss with its reason."""
    daemon.answers[requests.Acquire] = acquired(offer(32, ready=False))
    daemon.answers[requests.Restore] = replies.Failed(code, "EIO at segment 3", "disk", "replace the disk")
    hit = cache.acquire(cache.register(layout()), TOKENS)
    assert not hit
    assert "restore failed: disk: EIO at segment 3" in hit.why
