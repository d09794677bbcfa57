"""Arenas that somebody wrote to, and a descriptor store that gives back something else than it was given."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from kvledger import Cache
from kvledger.arena_header import ArenaHeader
from kvledger.errors import CapacityError, KVLedgerError
from kvledger.memfd import create_sealed
from kvledger.testing import Daemon
from kvledgerd.keeper.keeper import STORE_LIMIT
from support.descriptors import open_files
from support.neighbour import TOKENS, Neighbour, descriptors
from support.service_manager import Manager
from support.tiny import check, prompt, store, tiny_layout

SETTINGS = {"arena_bytes": "1MiB"}


def reopened(daemon):
    """Return the daemon's arenas, opened for writing as any process of its uid can."""
    found = {}
    for path, target in open_files(daemon.pid):
        if target.startswith("/memfd:kvledger-arena") and target not in found:
            found[target] = os.open(path, os.O_RDWR)
    return list(found.values())


def found_or_refused(cache, layout, seed):
    """Return how many tokens a look-up gives, 0 if it ends in a typed error; wrong bytes are an AssertionError."""
    try:
        return check(cache, layout, seed)
    except KVLedgerError:
        return 0


@pytest.mark.hostile("AR01")
@pytest.mark.slow
@pytest.mark.parametrize("value", [b"\0", b"\xff", b"\x5a"])
def test_an_overwritten_generation_table_costs_misses_and_is_rewritten(value):
    """Whoever overwrites generations makes hits of these arenas end in typed errors; a restart makes them anew."""
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon, Neighbour(daemon) as neighbour:
        for fd in reopened(daemon):
            header = ArenaHeader.unpack(os.pread(fd, 4096, 0), os.fstat(fd).st_size)
            os.pwrite(fd, value * (header.table_end - header.table_offset), header.table_offset)
            os.close(fd)
        assert found_or_refused(neighbour.cache, neighbour.layout, 1) == 0
        neighbour.is_served()
        daemon.kill()
        daemon.wait_ready()
        with neighbour.unharmed():
            assert check(neighbour.cache, neighbour.layout, 1) == TOKENS


@pytest.mark.hostile("AR01")
@pytest.mark.slow
@pytest.mark.parametrize("value", [b"\0", b"\xff"])
def test_an_overwritten_header_is_believed_by_nobody(value):
    """Who has not mapped the arena yet gets a typed error, who has reads on, and a restart drops it as lost memory."""
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon, Neighbour(daemon) as neighbour:
        assert check(neighbour.cache, neighbour.layout, 1) == TOKENS
        for fd in reopened(daemon):
            os.pwrite(fd, value * 4096, 0)
            os.close(fd)
        neighbour.is_served()
        with Cache.open(daemon.socket) as late:
            assert found_or_refused(late, late.register(tiny_layout("neighbour")), 1) == 0
            assert late.status().counters["leases"] == 0
        neighbour.is_served()
        daemon.kill()
        daemon.wait_ready()
        assert found_or_refused(neighbour.cache, neighbour.layout, 1) == 0
        neighbour.is_served()
        assert neighbour.holdings()["decision_faults"] == 0


def copied(fd, identity=None):
    """Return another arena with the header of one, and other bytes behind it."""
    size = os.fstat(fd).st_size
    copy = create_sealed("kvledger-arena-forged", size)
    os.pwrite(copy, os.pread(fd, size, 0)[: size // 2] + b"\xee" * (size - size // 2), 0)
    if identity is not None:
        os.pwrite(
            copy, ArenaHeader.plan(identity, ArenaHeader.unpack(os.pread(fd, 4096, 0), size).data_bytes).pack(), 0
        )
    return copy


def an_unknown_one(stored):
    """Add an arena that the log does not know, a memfd that is none, and a pipe."""
    name, fd = stored[0]
    header = ArenaHeader.unpack(os.pread(fd, 4096, 0), os.fstat(fd).st_size)
    unknown = copied(fd, replace(header.identity, arena_id=77))
    return [("arena-77", unknown), (name, create_sealed("none", 4096)), ("odd", os.pipe()[0]), *stored]


def one_twice(stored):
    """Add each once more, under its own name and under another's."""
    twice = [(name, os.dup(fd)) for name, fd in stored]
    return [*stored, *twice, *zip(["arena-2", "arena-1"], [os.dup(fd) for _, fd in stored[:2]], strict=True)]


def two_with_one_id(stored):
    """Add a forged arena with the id of each behind it."""
    return [*stored, *((name, copied(fd)) for name, fd in stored)]


@pytest.mark.hostile("AR02", "AR03")
@pytest.mark.slow
def test_a_store_that_gives_back_too_much_changes_nothing(tmp_socket_dir):
    """An unknown arena, one twice, two with one id: the right ones are used, the others closed and told."""
    with Manager(tmp_socket_dir) as manager:
        manager.start()
        with Neighbour(manager) as neighbour:
            held = descriptors(manager)
            for tamper in (an_unknown_one, one_twice, two_with_one_id):
                manager.kill()
                before, told = manager.store.items(), manager.output.read_text().count("descriptor refused")
                passed = tamper(before)
                manager.start(passed)
                for _, fd in [entry for entry in passed if entry not in before]:
                    os.close(fd)
                with neighbour.unharmed():
                    assert descriptors(manager) == held, tamper.__name__
                assert manager.output.read_text().count("descriptor refused") > told, tamper.__name__


@pytest.mark.hostile("AR02", "AR03")
@pytest.mark.slow
def test_a_store_that_gives_back_less_or_forged_memory_costs_misses(tmp_socket_dir):
    """One arena less, or one whose bytes are others under the right header, is a miss and never a wrong byte."""
    with Manager(tmp_socket_dir) as manager:
        manager.start()
        with Neighbour(manager) as neighbour:
            for tamper in (one_less, forged):
                manager.kill()
                manager.start(tamper(manager.store.items()))
                assert found_or_refused(neighbour.cache, neighbour.layout, 1) < TOKENS
                neighbour.is_served()
                store(neighbour.cache, neighbour.layout, 1)
                assert check(neighbour.cache, neighbour.layout, 1) == TOKENS, tamper.__name__


def one_less(stored):
    """Return the store without the arena that was stored last, in which states lie."""
    return stored[:-1]


def forged(stored):
    """Return the store with another memory under each right header."""
    found = []
    for name, fd in stored:
        size = os.fstat(fd).st_size
        copy = create_sealed("kvledger-arena-forged", size)
        header = ArenaHeader.unpack(os.pread(fd, 4096, 0), size)
        os.pwrite(copy, os.pread(fd, header.data_offset, 0), 0)
        found.append((name, copy))
    return found


def held(cache):
    """Return what is held for anybody, in numbers."""
    counters = cache.status().counters
    return [counters[name] for name in ("units", "jobs", "leases", "decision_faults")]


@pytest.mark.hostile("AR04")
@pytest.mark.slow
def test_a_store_that_takes_too_few_is_a_refusal_in_words(tmp_socket_dir):
    """With room for one arena only the second kind is refused with its reason; once there is room it works."""
    with Manager(tmp_socket_dir, limit=1) as manager:
        manager.start()
        with Cache.open(manager.socket, staging_bytes=1 << 17) as cache:
            layout = cache.register(tiny_layout())
            for seed in range(3):
                with pytest.raises(CapacityError) as refused:
                    store(cache, layout, seed)
                assert refused.value.remedy
            # The daemon's own drill has a reservation now and then.
            assert any(set(held(cache)) == {0} for _ in range(100))
            assert not cache.acquire(layout, prompt(0))
        manager.kill()
        manager.store.limit = STORE_LIMIT
        manager.start()
        with Neighbour(manager) as neighbour:
            neighbour.is_served()
