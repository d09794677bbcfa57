"""Field cases of restart, disk and liveness against the real daemon under its keeper, each by its id."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from kvledger import Cache, Kind
from kvledger.errors import KVLedgerError, LeaseLost
from kvledger.testing import Daemon
from support.descriptors import open_files
from support.promises import WrongHitError
from support.tiny import check, content, prompt, store, tiny_layout

MIB = 1 << 20
TOKENS = 50
SETTINGS = {"arena_bytes": "4MiB", "disk_segment_bytes": "64KiB", "restart_seconds": 0, "read_seconds": 2}
KINDS = (Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL)


@pytest.fixture(scope="module")
def daemon():
    """Give one daemon to all tests that damage nothing but their own prompts, which they tell apart by number."""
    with Daemon(memory="64MiB", settings=SETTINGS) as running:
        yield running


@pytest.fixture
def cache(daemon):
    """Give an open cache."""
    with Cache.open(daemon.socket, timeout=60) as opened:
        yield opened


def reuse(cache, layout, number):
    """Return the tokens that can be reused, and tell wrong bytes from every other failure."""
    try:
        return check(cache, layout, number)
    except AssertionError as error:
        raise WrongHitError(str(error)) from error


def to_disk(cache, layout, number):
    """Store a prompt and leave it on disk alone."""
    store(cache, layout, number)
    cache.offload(layout, prompt(number), boundary=TOKENS)
    for kind in KINDS:
        cache.evict(layout, prompt(number), boundary=TOKENS, kind=kind)


def restores(cache):
    """Return how many restores ended well and how many did not, by kind."""
    counters = cache.status().counters
    return {name: counters[name] for name in counters if name.startswith(("restore_done", "restore_failed"))}


def segments(daemon):
    """Return the files of disk records in order."""
    return sorted((daemon.data_dir / "data").glob("*.seg"))


def disk_bytes(daemon):
    """Return what the files of disk records take."""
    return sum(path.stat().st_size for path in segments(daemon))


def test_v38_f07_a_cut_file_is_a_miss_once_and_can_be_stored_again(daemon, cache):
    """V38, F07: records cut off are misses that are not tried again, and a later store of the same prompt hits."""
    layout = cache.register(tiny_layout())
    to_disk(cache, layout, 1)
    for path in segments(daemon):
        os.truncate(path, 4096)

    before = restores(cache)
    assert reuse(cache, layout, 1) == 0
    tried = restores(cache)
    assert tried != before
    assert reuse(cache, layout, 1) == 0
    assert restores(cache) == tried
    store(cache, layout, 1)
    assert reuse(cache, layout, 1) == TOKENS


def test_v39_one_flipped_byte_costs_its_own_prompt_only(daemon, cache):
    """V39: a flipped byte of a record is a miss, its neighbours hit, and storing again repairs it."""
    layout = cache.register(tiny_layout())
    for number in (11, 12):
        to_disk(cache, layout, number)
    wanted = content(11, "full", 0, 64)
    (path,) = (path for path in segments(daemon) if wanted in path.read_bytes())
    data = bytearray(path.read_bytes())
    data[data.index(wanted) + 30] ^= 1
    path.write_bytes(data)

    assert reuse(cache, layout, 11) < TOKENS
    assert reuse(cache, layout, 12) == TOKENS
    store(cache, layout, 11)
    assert reuse(cache, layout, 11) == TOKENS


def test_f06_swapped_files_are_misses(daemon, cache):
    """F06: two data files under each other's names give no hit with the other's bytes."""
    layout = cache.register(tiny_layout())
    numbers = range(21, 25)
    for number in numbers:
        to_disk(cache, layout, number)
    daemon.kill()
    daemon.wait_ready()
    first, second = segments(daemon)[-2:]
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)

    found = [reuse(cache, layout, number) for number in numbers]
    assert min(found) == 0
    for number in numbers:
        store(cache, layout, number)
    assert [reuse(cache, layout, number) for number in numbers] == [TOKENS] * len(numbers)


def test_p39_a_restore_that_can_not_be_read_ends_by_its_deadline():
    """P39: whatever stands in the place of a data file, the look-up answers within the deadline, with a miss."""
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        for number, put_there in enumerate((Path.touch, os.mkfifo, Path.mkdir)):
            to_disk(cache, layout, number)
            daemon.kill()
            daemon.wait_ready()
            for path in segments(daemon):
                path.unlink()
                put_there(path)
            began = time.monotonic()

            assert reuse(cache, layout, number) == 0
            assert time.monotonic() - began < 15.0


def shared_memory():
    """Return the names in /dev/shm, where there is one."""
    place = Path("/dev/shm")
    return set(place.iterdir()) if place.is_dir() else set()


def memfds(pid):
    """Return how many memory files a process holds."""
    return sum(target.startswith("/memfd:") for _, target in open_files(pid))


def test_v48_restarts_leave_no_shared_memory_behind(daemon):
    """V48: after five kills the daemon holds the memory that it held after the first, and /dev/shm has no new name."""
    names = shared_memory()
    held = []
    for _ in range(5):
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            store(cache, layout, 41)
            assert reuse(cache, layout, 41) == TOKENS
        daemon.kill()
        daemon.wait_ready()
        held.append(memfds(daemon.pid))

    assert len(set(held)) == 1
    assert not [name for name in shared_memory() - names if "kvl" in name.name]


def test_l36_l37_the_cap_on_disk_holds_over_restarts():
    """L36, L37: filled, killed, and filled again, live records never exceed the cap, and the first look-up hits."""
    cap = 2 * MIB
    with Daemon(memory="64MiB", settings=SETTINGS | {"disk_bytes": cap}) as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        kept = []
        for number in range(90):
            if number == 15:
                daemon.kill()
                daemon.wait_ready()
                assert reuse(cache, layout, kept[0]) == TOKENS
            store(cache, layout, number)
            try:
                cache.offload(layout, prompt(number), boundary=TOKENS)
            except KVLedgerError as error:
                assert error.remedy  # noqa: PT017  a full disk may refuse, with a word on what to do
            else:
                kept.append(number)
            counters = cache.status().counters
            assert counters["disk_bytes"] <= cap
        assert len(kept) > 15
        assert reuse(cache, layout, kept[-1]) == TOKENS


def test_l38_a_quick_restart_is_seen_at_the_next_call(daemon, cache):
    """L38: after a restart of well under a second the next call meets the new incarnation and works."""
    layout = cache.register(tiny_layout())
    before = cache.status().incarnation
    daemon.kill()

    store(cache, layout, 51)
    assert cache.status().incarnation == before + 1


def test_f09_acknowledged_is_found_whatever_the_second(daemon, cache):
    """F09: killed at any moment after a store was acknowledged, the next incarnation has it."""
    layout = cache.register(tiny_layout())
    chance = random.Random(9)
    for number in range(60, 64):
        store(cache, layout, number)
        time.sleep(chance.choice((0.0, 0.001, 0.01, 0.1)))
        daemon.kill()
        daemon.wait_ready()
        assert reuse(cache, layout, number) == TOKENS


def test_p37_committed_is_hit_again_and_open_reservations_are_gone(daemon, cache):
    """P37: after a kill everything committed is hit, and what was handed in without a commit is nowhere."""
    layout = cache.register(tiny_layout())
    numbers = range(70, 76)
    for number in numbers:
        store(cache, layout, number)
    unit = cache.reserve(layout, prompt(77), boundary=TOKENS)
    for slot in unit.objects:
        unit.put(slot, content(77, slot.group, slot.first_token, slot.length))
    daemon.kill()
    daemon.wait_ready()

    assert [reuse(cache, layout, number) for number in numbers] == [TOKENS] * len(numbers)
    assert reuse(cache, layout, 77) == 0
    with pytest.raises(KVLedgerError):
        unit.commit()
    assert cache.status().counters["units"] == 0


def test_f10_a_hit_of_before_the_restart_is_lost_by_name(daemon, cache):
    """F10: a lease of the dead incarnation raises LeaseLost, and every further call answers within its deadline."""
    layout = cache.register(tiny_layout())
    store(cache, layout, 81)
    hit = cache.acquire(layout, [*prompt(81), 7])
    daemon.kill()
    daemon.wait_ready()
    began = time.monotonic()

    store(cache, layout, 82)
    with pytest.raises(LeaseLost):
        hit.check()
    assert reuse(cache, layout, 81) == TOKENS
    assert time.monotonic() - began < 15.0
