"""Units that ask to be persistent: acknowledged when they are durable, and told what to do where they can not be."""

from __future__ import annotations

import os
import signal

import pytest

from kvledger import Cache
from kvledger.errors import CallerError, NotDurableError
from kvledger.testing import Daemon
from support.tiny import check, content, prompt, tiny_layout


def fill(unit, seed: int) -> None:
    """Put every object of a unit with the bytes of its seed."""
    for slot in unit.objects:
        unit.put(slot, content(seed, slot.group, slot.first_token, slot.length))


def test_what_was_acknowledged_outlives_the_memory():
    """After the commit of a persistent unit keeper and daemon may be killed: the next daemon gives the bytes back."""
    with Daemon(memory="64MiB", keeper=False) as daemon:
        with Cache.open(daemon.socket) as cache:
            known = cache.register(tiny_layout())
            with cache.reserve(known, prompt(1), boundary=50, persist=True) as unit:
                fill(unit, 1)
            assert cache.status().counters["disk_bytes"] > 0
            with cache.reserve(known, prompt(2), boundary=50, persist=True) as handed:
                ticket = handed.tickets()[0]
            shard = cache.join(ticket)
            fill(shard, 2)
            shard.commit()
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.stop()
        daemon.start()
        daemon.wait_ready()
        with Cache.open(daemon.socket) as cache:
            known = cache.register(tiny_layout())
            assert [check(cache, known, seed) for seed in (1, 2)] == [50, 50]
            assert cache.status().counters["restore_done.UNCOMPRESSED_TAIL"] == 2


@pytest.fixture(scope="module")
def diskless():
    """Give a daemon that keeps nothing on disk, and takes layouts without named weights."""
    with Daemon(memory="64MiB", settings={"disk_bytes": 0, "allow_unpinned": True}) as running:
        yield running


def test_a_disk_that_can_not_take_it_is_named(diskless):
    """Without room on disk the commit raises with what to do, the unit is published, and the next one is tried anew."""
    with Cache.open(diskless.socket) as cache:
        known = cache.register(tiny_layout())
        unit = cache.reserve(known, prompt(1), boundary=50, persist=True)
        fill(unit, 1)
        with pytest.raises(NotDurableError, match="keeps nothing on disk") as caught:
            unit.commit()
        assert (caught.value.field, caught.value.remedy) == ("disk_bytes", "start it with disk_bytes above 0")
        assert check(cache, known, 1) == 50


def test_what_could_never_be_durable_is_refused_at_once(diskless):
    """Blocks without a boundary, and layouts without named weights, are refused before anything is put."""
    with Cache.open(diskless.socket) as cache:
        known = cache.register(tiny_layout())
        with pytest.raises(CallerError, match="without a boundary"):
            cache.reserve(known, prompt(1), persist=True)
        unnamed = cache.register(tiny_layout(weights=""))
        with pytest.raises(CallerError, match="ends with its engine"):
            cache.reserve(unnamed, prompt(1), boundary=50, persist=True)
        assert cache.status().counters["units"] == 0
