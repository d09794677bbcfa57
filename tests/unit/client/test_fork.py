"""Forks: the child leaves the parent's connection alone and gets one of its own."""

import gc
import os
import traceback
import warnings

import pytest

from kvledger.errors import LeaseLost
from kvledger.wire import requests
from unit.client.fake import layout
from unit.client.test_hit import PAGE, TOKENS, acquired, fill, offer


def in_child(work):
    """Run `work` in a forked child and return what went wrong there, empty if nothing did."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # The fake daemon runs in threads of the parent; the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a child must not come back into pytest
            os.write(writer, traceback.format_exc().encode()[-4000:])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        wrong = pipe.read()
    _, status = os.waitpid(child, 0)
    return wrong or (f"the child ended with status {status}" if status else "")


def test_child_has_its_own_connection(daemon, cache):
    """The child's first call opens a connection under another engine id; the parent's goes on undisturbed."""
    registered = cache.register(layout())

    def work():
        assert cache.status().incarnation == 1
        with cache.reserve(registered, TOKENS, boundary=32) as unit:
            unit["full"].buffer[:] = b"c" * 8192
        cache.close()

    assert in_child(work) == ""
    first, second = daemon.asked(requests.Hello)
    assert first.engine == cache.engine != second.engine
    assert not second.leader
    assert daemon.stored[1001, 0] == b"c" * 4096
    assert not cache.acquire(registered, TOKENS)
    assert len(daemon.asked(requests.Hello)) == 2


def test_hits_of_the_parent_are_lost_in_the_child(daemon, cache):
    """In the child a hit of the parent lends nothing, and there releasing it does not release it for the parent."""
    fill(daemon)
    daemon.answers[requests.Acquire] = acquired(offer(32))
    registered = cache.register(layout())
    with cache.acquire(registered, TOKENS) as hit:
        handle = hit["full"][0]

        def work():
            with pytest.raises(LeaseLost):
                handle.buffer  # noqa: B018 - looking is what fails
            for look in (lambda: list(hit), lambda: hit["full"]):
                with pytest.raises(LeaseLost, match="parent") as lost:
                    look()
                assert lost.value.remedy
            with pytest.raises(LeaseLost):
                hit.check()
            hit.release()

        assert in_child(work) == ""
        assert bytes(handle.buffer) == b"\1" * PAGE
        cache.status()
        assert not daemon.asked(requests.Release)


def test_units_of_the_parent_are_lost_in_the_child(daemon, cache):
    """In the child a unit of the parent is lost, and the parent commits it as if nothing had been."""
    registered = cache.register(layout())
    with cache.reserve(registered, TOKENS, boundary=32) as unit:
        unit["full"].buffer[:] = b"p" * 8192

        def work():
            with pytest.raises(LeaseLost):
                unit.commit()
            unit.abort()

        assert in_child(work) == ""
    assert daemon.stored[1001, 0] == b"p" * 4096
    assert not daemon.asked(requests.Abort)


def test_child_may_forget_the_parents_maps(daemon, cache):
    """Dropping the parent's objects in the child unmaps nothing that the child has put in their place."""
    fill(daemon)
    daemon.answers[requests.Acquire] = acquired(offer(32))
    hit = cache.acquire(cache.register(layout()), TOKENS)
    kept = [hit, hit["full"][0]]

    def work():
        nonlocal hit
        blocks = [bytearray(b"x") * (4 << 20) for _ in range(16)]
        hit = None
        kept.clear()
        cache.status()
        gc.collect()
        assert all(block.count(b"x") == 4 << 20 for block in blocks)

    assert in_child(work) == ""
    hit.release()


def test_fork_while_another_thread_waits(daemon, cache):
    """A lock that some thread held at the fork does not hang the child."""
    cache.status()
    session = cache._link.session  # the held turn is what a fork at the wrong moment would find
    session._reading._moved.acquire()
    cache._link._turn._moved.acquire()
    try:
        assert in_child(cache.status) == ""
    finally:
        session._reading._moved.release()
        cache._link._turn._moved.release()


def test_a_closed_cache_closes_nothing_in_a_child(daemon, cache):
    """The number that its ring had may be another file's when the process forks, and stays open in the child."""
    registered = cache.register(layout())
    with cache.reserve(registered, TOKENS, boundary=32) as unit:
        unit["full"].buffer[:] = b"c" * 8192
    cache.close()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(16)]

    assert in_child(lambda: [os.fstat(number) for number in opened]) == ""
    for number in opened:
        os.close(number)
