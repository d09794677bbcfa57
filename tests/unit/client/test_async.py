"""The asynchronous client: the same behaviour, and what only tasks can do, be cancelled."""

import asyncio
import threading

import pytest

from kvledger import AsyncCache
from kvledger.errors import DisconnectedError, LeaseLost
from kvledger.waiting import Deadline, DeadlineError
from kvledger.wire import replies, requests
from support.shell import until
from unit.client.fake import NOTHING, layout
from unit.client.test_hit import PAGE, TOKENS, acquired, fill, offer

pytestmark = pytest.mark.asyncio


async def _seen(daemon, kind, count=1):
    """Wait until the daemon has read requests that nobody waits for."""
    await until(lambda: len(daemon.asked(kind)) >= count)
    return daemon.asked(kind)


async def test_write_and_read(daemon):
    """A unit is filled and committed, and a hit is read, checked and released."""
    fill(daemon)
    daemon.answers[requests.Acquire] = acquired(offer(32))
    async with await AsyncCache.open(daemon.path, staging_bytes=64 << 10) as cache:
        registered = await cache.register(layout())
        async with await cache.reserve(registered, TOKENS, boundary=32) as unit:
            await unit.put(unit.objects[0], b"a" * 4096)
            async with unit.staging(unit.objects[1]) as view:
                view[:] = b"b" * 4096
            unit["swa"].buffer[:] = b"c" * 4096
        async with await cache.acquire(registered, TOKENS) as hit:
            assert bytes(hit["full"][1].buffer) == b"\2" * PAGE
        assert await _seen(daemon, requests.Release) == [requests.Release(9)]
        assert repr(unit) == "<AsyncUnit committed, 3 objects, 0 present>"
        assert repr(hit) == "<AsyncHit released, 32 of 40 tokens, exact>"
    assert [daemon.stored[1001, i][:1] for i in range(3)] == [b"a", b"b", b"c"]
    assert repr(cache) == f"<AsyncCache {daemon.path}: closed, 1 layout>"


async def test_many_tasks(daemon):
    """Each of many tasks gets the answer to its own question over one connection."""
    daemon.answers[requests.Evict] = lambda _, request: replies.Evicted(request.page)
    async with await AsyncCache.open(daemon.path, timeout=60) as cache:
        registered = await cache.register(layout())
        calls = [cache.evict(registered, TOKENS, kind=1, page=number) for number in range(100)]
        assert [answer.dropped for answer in await asyncio.gather(*calls)] == list(range(100))
    assert len(daemon.asked(requests.Hello)) == 1


async def test_cancelled_reader_passes_the_turn(daemon):
    """If the task that reads for all is cancelled, another one reads on and nobody waits for ever."""
    daemon.answers[requests.Describe] = NOTHING
    async with await AsyncCache.open(daemon.path, timeout=60) as cache:
        registered = await cache.register(layout())
        reader = asyncio.create_task(cache.describe(registered, TOKENS))
        await _seen(daemon, requests.Describe)
        go = threading.Event()
        daemon.answers[requests.Status] = lambda *_: go.wait(60) and replies.StatusReport(1, 0, "", {})
        others = [asyncio.create_task(cache.status()) for _ in range(3)]
        await _seen(daemon, requests.Status)
        reader.cancel()
        go.set()
        assert [(await other).incarnation for other in others] == [1, 1, 1]
        with pytest.raises(asyncio.CancelledError):
            await reader


async def test_cancelled_lookup_gives_its_lease_back(daemon):
    """The lease of a look-up that was cancelled before its answer came is given back when it comes."""
    late = []
    daemon.answers[requests.Acquire] = lambda peer, _: late.append(peer) or NOTHING
    async with await AsyncCache.open(daemon.path) as cache:
        registered = await cache.register(layout())
        task = asyncio.create_task(cache.acquire(registered, TOKENS))
        await until(lambda: late)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(daemon.say, late[0], 3, acquired(offer(32)))
        await cache.status()
        await cache.status()
        assert await _seen(daemon, requests.Release) == [requests.Release(9)]


async def test_cancelled_lookup_gives_its_lease_back_without_another_call(daemon):
    """The late lease is given back though nobody calls the cache again."""
    late = []
    daemon.answers[requests.Acquire] = lambda peer, _: late.append(peer) or NOTHING
    async with await AsyncCache.open(daemon.path) as cache:
        registered = await cache.register(layout())
        task = asyncio.create_task(cache.acquire(registered, TOKENS))
        await until(lambda: late)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(daemon.say, late[0], 3, acquired(offer(32)))
        assert await _seen(daemon, requests.Release) == [requests.Release(9)]
        assert (await cache.status()).incarnation == 1


async def test_l22_what_could_not_be_given_back_now_is_given_back_later(daemon):
    """A lease that came too late, and whose release finds no time either, is released with a later call."""
    async with await AsyncCache.open(daemon.path) as cache:
        await cache.register(layout())
        session = cache._link.session
        session._undo = [requests.Release(9), requests.Abort(7)]
        await session._sending.take(Deadline(1))
        await session._send_undo(Deadline(0.01))
        session._sending.give()
        assert daemon.asked(requests.Abort) == []
        await cache.status()
        assert await _seen(daemon, requests.Release) == [requests.Release(9)]
        assert await _seen(daemon, requests.Abort) == [requests.Abort(7)]


async def test_a_late_reply_is_waited_for_no_longer_than_the_timeout(daemon):
    """A reply that never comes keeps no task beyond the cache's timeout, nor beyond the cache."""
    daemon.answers[requests.Acquire] = NOTHING
    before = asyncio.all_tasks()
    for number, timeout in enumerate((0.5, 60), 1):
        async with await AsyncCache.open(daemon.path) as cache:
            registered = await cache.register(layout())
            cache._link.timeout = timeout  # of the look-up alone, so that nothing before it is pressed for time
            task = asyncio.create_task(cache.acquire(registered, TOKENS))
            await _seen(daemon, requests.Acquire, number)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(asyncio.all_tasks() - before) == 1
            if timeout < 60:
                await until(lambda: asyncio.all_tasks() == before)
        await until(lambda: asyncio.all_tasks() == before)


async def test_cancelled_block_aborts(daemon):
    """A task that is cancelled inside a unit's block aborts it, shielded from the cancellation."""
    async with await AsyncCache.open(daemon.path) as cache:
        registered, inside = await cache.register(layout()), asyncio.Event()

        async def fill_for_ever():
            async with await cache.reserve(registered, TOKENS, boundary=32):
                inside.set()
                await asyncio.sleep(600)

        task = asyncio.create_task(fill_for_ever())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await _seen(daemon, requests.Abort) == [requests.Abort(1001)]


async def test_deadline(daemon):
    """A daemon that keeps silent costs the timeout."""
    daemon.answers[requests.Status] = NOTHING
    async with await AsyncCache.open(daemon.path) as cache:
        cache._link.timeout = 0.1
        with pytest.raises(DeadlineError):
            await cache.status()


async def test_restart(daemon):
    """After a restart the next call meets the new incarnation, and what was leased before is lost."""
    fill(daemon)
    daemon.answers[requests.Acquire] = acquired(offer(32))
    async with await AsyncCache.open(daemon.path) as cache:
        hit = await cache.acquire(await cache.register(layout()), TOKENS)
        await asyncio.to_thread(daemon.restart)
        assert (await cache.status()).incarnation == 2
        with pytest.raises(LeaseLost):
            hit.check()
        with pytest.raises(LeaseLost):
            list(hit)
        await hit.release()


async def test_close_wakes_all(daemon):
    """Closing a cache wakes the calls that wait for answers."""
    daemon.answers[requests.Status] = NOTHING
    cache = await AsyncCache.open(daemon.path)
    waiting = [asyncio.create_task(cache.status()) for _ in range(3)]
    await _seen(daemon, requests.Status, 3)
    cache.close()
    for task in waiting:
        with pytest.raises(DisconnectedError):
            await task


async def test_cancelled_restore_gives_its_lease_back(daemon):
    """A look-up that is cancelled while it waits for the disk gives back the lease that it holds meanwhile."""
    daemon.answers[requests.Acquire] = acquired(offer(32, ready=False))
    daemon.answers[requests.Restore] = NOTHING
    async with await AsyncCache.open(daemon.path) as cache:
        registered = await cache.register(layout())
        task = asyncio.create_task(cache.acquire(registered, TOKENS))
        await _seen(daemon, requests.Restore)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await _seen(daemon, requests.Release) == [requests.Release(9)]
