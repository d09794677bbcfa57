"""Quotas through a real daemon: what an operator types, and memory that changes hands under readers."""

import json

import pytest

from kvledger import Cache, Kind
from kvledger.errors import CapacityError, RoutingError
from kvledger.kinds import Form
from kvledger.testing import Daemon
from support import commands
from support.world import group, layout

BLOCK = 16
PAGE = 32 << 10
ROWS = layout(
    group("C", Kind.COMPRESSED_KV, rows_per_page=BLOCK, page_bytes=PAGE), block_tokens=BLOCK, model="rows alone"
)
WINDOWS = layout(
    group("C", Kind.COMPRESSED_KV, rows_per_page=BLOCK, page_bytes=PAGE),
    group("S", Kind.SWA_WINDOW, Form.PAGED_WINDOW, rows_per_page=BLOCK, window=BLOCK, page_bytes=PAGE),
    block_tokens=BLOCK,
    model="rows and windows",
)


@pytest.fixture(scope="module")
def daemon():
    """A daemon with eight MiB, which is sixteen arenas."""
    with Daemon(memory="8MiB") as started:
        yield started


def prompt(number: int) -> list[int]:
    """One block of its own."""
    return [1000 * number + token for token in range(BLOCK)]


def store(cache, registered, number: int) -> None:
    """Store one block, each object filled with the number of its prompt."""
    with cache.reserve(registered, prompt(number), boundary=BLOCK) as unit:
        for slot in unit.objects:
            unit.put(slot, bytes([number % 251]) * slot.length)


def kvledger(daemon, *arguments: str, code: int = 0) -> str:
    """Run a command that has to end with `code`; return what it says."""
    found = commands.kvledger(*arguments, "--socket", str(daemon.socket))
    assert found.returncode == code, found.stderr
    return found.stdout if code == 0 else found.stderr


def test_memory_changes_hands_and_old_handles_know_it(daemon):
    """Rows that filled all memory give an arena to windows; those read back, and a handle into it is stale."""
    with Cache.open(daemon.socket) as cache:
        rows = cache.register(ROWS)
        for number in range(300):
            store(cache, rows, number)
        old = [cache.acquire(rows, prompt(number), leave=0) for number in range(300)]
        handles = [handle for hit in old if hit for handle in hit]
        for hit in old:
            hit.release()
        windows = cache.register(WINDOWS)
        store(cache, windows, 400)
        held = {one.kind: one.held_bytes for one in cache.quotas()}
        assert (held[Kind.SWA_WINDOW], held[Kind.COMPRESSED_KV]) == (512 << 10, 15 * 512 << 10)
        with cache.acquire(windows, prompt(400), leave=0) as hit:
            assert {bytes(handle.buffer) for handle in hit} == {bytes([400 % 251]) * PAGE}
        current = [handle.is_current for handle in handles]
        assert 0 < sum(current) <= len(handles) - 16


def test_an_operator_types_quotas(daemon):
    """`kvledger quota set` fixes a share, `show` tells it, 0 leaves it to the load, a wrong kind is named."""
    kvledger(daemon, "quota", "set", "swa_window", "2MiB")
    found = json.loads(kvledger(daemon, "quota", "show", "--json").splitlines()[-1])["quotas"]
    assert {one["kind"]: (one["sure_bytes"], one["fixed"]) for one in found}["SWA_WINDOW"] == (2 << 20, True)
    assert "SWA_WINDOW" in kvledger(daemon, "quota", "show")
    kvledger(daemon, "quota", "set", "SWA_WINDOW", "0")
    assert "is no kind" in kvledger(daemon, "quota", "set", "WINDOWS", "1MiB", code=64)


def test_a_client_that_asks_for_the_impossible_is_told(daemon):
    """Quotas of disk prefixes and of more memory than there is are typed errors."""
    with Cache.open(daemon.socket) as cache:
        with pytest.raises(RoutingError):
            cache.set_quota(Kind.DISK_PREFIX, 1 << 20)
        with pytest.raises(CapacityError, match="raise memory_bytes"):
            cache.set_quota(Kind.SWA_WINDOW, 9 << 20)


def test_a_quota_outlives_the_daemon(daemon):
    """What was fixed is fixed after a kill."""
    with Cache.open(daemon.socket) as cache:
        cache.set_quota(Kind.INDEXER_STATE, 1 << 20)
        daemon.kill()
        daemon.wait_ready()
        shares = {one.kind: one for one in cache.quotas()}
        assert (shares[Kind.INDEXER_STATE].sure_bytes, shares[Kind.INDEXER_STATE].fixed) == (1 << 20, True)
        cache.set_quota(Kind.INDEXER_STATE, 0)
