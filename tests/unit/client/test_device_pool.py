"""Device pools on the client's side: what is asked, which handles are still true, and what an odd answer leads to."""

import pytest
from msgspec.structs import replace

from kvledger.device_regions import group_alignment, regions, shared_pages
from kvledger.device_view import DevicePages
from kvledger.errors import CallerError, LeaseLost, ProtocolError
from kvledger.geometry import Geometry
from kvledger.wire import replies, requests
from kvledger.wire.replies import HandleRun
from unit.client.fake import BLOCK, layout
from unit.client.test_hit import PAGE, TOKENS, acquired, offer

POOL = 40
ADDRESS = 0x1040


def on_device(count=2, generation=5, offset=0, prints=None):
    """A run of rows in the device pool."""
    found = bytes(range(8 * count)) if prints is None else prints
    return HandleRun(0, 0, 0, BLOCK, BLOCK, count, POOL, offset, PAGE, PAGE, generation, found)


def verdict(*rows):
    """A hit whose rows lie on the device and whose state lies in memory."""
    return replace(acquired(offer(32)), rows=list(rows))


@pytest.fixture
def pool(daemon, cache):
    """A pool that the fake daemon has let in."""
    daemon.answers[requests.RegisterPool] = replies.PoolRegistered(POOL)
    return cache.device_pool("gpu", 1 << 20, cache.register(layout()), address=ADDRESS, pages={"full": 8, "swa": 2})


def test_a_registration_says_what_is_set_aside(daemon, pool):
    """Pages go in the order of the layout, and memory that is not named is this engine's own."""
    (asked,) = daemon.asked(requests.RegisterPool)
    assert (asked.device, asked.size, asked.address, asked.pages) == ("gpu", 1 << 20, ADDRESS, [8, 2])
    assert (len(asked.memory), asked.rank, asked.pool) == (32, -1, 0)
    assert [region.group for region in pool.regions] == [0, 1]
    assert repr(pool) == f"<DevicePool {POOL} on gpu, 1048576 bytes, registered>"


def test_handles_tell_place_and_fingerprint(daemon, cache, pool):
    """Rows on the device and a state in memory make one hit; each handle knows where it lies."""
    daemon.place(8 * PAGE, b"s" * PAGE, 6)
    daemon.answers[requests.Acquire] = verdict(on_device())
    with cache.acquire(cache.register(layout()), TOKENS) as hit:
        first, second = (handle.device for handle in hit["full"])
        assert (first.pool, first.address, first.length) == (POOL, ADDRESS, PAGE)
        assert (second.offset, second.address) == (PAGE, ADDRESS + PAGE)
        assert second.fp64 == int.from_bytes(bytes(range(8, 16)), "little")
        (kept,) = hit["swa"]
        assert kept.device is None
        assert bytes(kept.buffer) == b"s" * PAGE


def test_pages_given_again_make_older_handles_stale(daemon, cache, pool):
    """What this process was given since is not what the handle names, and `check` says so."""
    daemon.place(8 * PAGE, b"s" * PAGE, 6)
    daemon.answers[requests.Acquire] = verdict(on_device())
    daemon.answers[requests.AskPages] = replies.PagesGiven(12, b"\x06", [PAGE], [])
    daemon.answers[requests.GivePagesUp] = replies.Done()
    hit = cache.acquire(cache.register(layout()), TOKENS)
    assert [handle.device.pool for handle in hit["full"]] == [POOL, POOL]
    hit.check()
    with pool.ask(TOKENS, boundary=32) as unit:
        assert [slot.offset for slot in unit.missing] == [PAGE]
        assert [slot.present for slot in unit.objects] == [False, True, True]
    with pytest.raises(LeaseLost, match="1 of 2 handles were taken back"):
        hit.check()
    hit.release()


def test_a_pool_of_another_process_is_read_under_its_lease(daemon, cache):
    """A scheduler is told of its worker's pool, whose address it does not know; the lease alone keeps the bytes."""
    daemon.place(8 * PAGE, b"s" * PAGE, 6)
    daemon.answers[requests.Acquire] = verdict(on_device())
    with cache.acquire(cache.register(layout()), TOKENS) as hit:
        assert [handle.device.address for handle in hit["full"]] == [-1, -1]
        with pytest.raises(CallerError, match="no host buffer"):
            hit["full"][0].buffer  # noqa: B018 - taking it is what fails


def test_a_run_without_its_fingerprints_is_refused(daemon, cache, pool):
    """Objects on a device that bring fewer fingerprints than there are objects break the protocol."""
    assert pool.number == POOL
    daemon.answers[requests.Acquire] = verdict(on_device(prints=bytes(8)))
    with pytest.raises(ProtocolError, match="8 bytes of fp64 for 2 objects"):
        cache.acquire(cache.register(layout()), TOKENS)


def test_a_reply_that_nobody_reads_is_undone():
    """Pages and pools that reach nobody are given back; a pool that a topology kept is not."""
    from kvledger.mailbox import undoing

    assert undoing(replies.PagesGiven(12, b"", [], [])) == [requests.GivePagesUp(12)]
    assert undoing(replies.PoolRegistered(POOL)) == [requests.DropPool(POOL)]
    assert undoing(replies.PoolRegistered(POOL, kept=3)) == []


def test_shared_pages_fill_the_pool_and_fit():
    """Shares leave no group out, and take nearly all of the bytes."""
    geometry = Geometry(layout())
    for size in (1 << 18, 1 << 20, 12_345_678):
        counts = shared_pages(geometry, ADDRESS, size)
        cut = regions(geometry.layout, ADDRESS, counts, size)
        assert [region.group for region in cut] == [0, 1]
        assert cut[-1].end > size - 40 * PAGE
        assert all((ADDRESS + r.start) % group_alignment(geometry.layout, r.group) == 0 for r in cut)


def test_the_table_of_generations_counts_whole_objects():
    """An object is true while all of its pages bear its generation; pages that were never given here are not known."""
    cut = regions(layout(), 0, [8, 2], 1 << 20)
    pages = DevicePages(0, cut)
    assert pages.is_current(0, 7, 3 * PAGE)
    pages.give(0, 3 * PAGE, 7)
    assert (pages.is_current(0, 7, 3 * PAGE), pages.is_current(0, 6, 3 * PAGE)) == (True, False)
    pages.give(2 * PAGE, PAGE, 9)
    assert not pages.is_current(0, 7, 3 * PAGE)
