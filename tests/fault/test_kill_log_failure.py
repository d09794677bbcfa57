"""A log that can not be written: nothing more is acknowledged, the daemon ends, and the next one knows all that was."""

from __future__ import annotations

import contextlib
import resource

import pytest

from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.testing import Daemon
from kvledger_storage.log import verify
from support.tiny import check, store, tiny_layout
from support.traced_daemon import TracedDaemon, why_not


def stored(cache: Cache, layout, seed: int) -> bool:
    """Store a prompt; return whether that was acknowledged, perhaps by the next incarnation."""
    try:
        store(cache, layout, seed)
    except KVLedgerError:
        return False
    return True


def test_unwritable_logs_end_the_daemon():
    """When a write to the log fails the daemon ends, and the next one has all that was ever acknowledged."""
    with Daemon(memory="64MiB", settings={"arena_bytes": "4MiB"}) as daemon:
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            store(cache, layout, 1)
            # From here on every write of this process to a file is refused; the next process is not concerned.
            resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            acknowledged = stored(cache, layout, 2)
        welcome = daemon.wait_ready()

        assert welcome.incarnation == 2
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            assert check(cache, layout, 1) == 50
            assert check(cache, layout, 2) == 50 or not acknowledged
        assert "ended with code 74" in daemon.output.read_text()


SYNCS = [6, *(pytest.param(number, marks=pytest.mark.slow) for number in (9, 14, 20))]


@pytest.mark.parametrize("number", SYNCS)
def test_a_failed_sync_is_never_tried_again(number, tmp_socket_dir):
    """A disk that refuses one sync and takes the next: the daemon ends with 74, asks no second time, loses nothing."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    kept = []
    with TracedDaemon(tmp_socket_dir, "fdatasync", number, "error=EIO") as daemon:
        if daemon.wait_ready():
            with contextlib.suppress(KVLedgerError), Cache.open(daemon.socket, timeout=60) as cache:
                for seed in range(40):
                    layout = cache.register(tiny_layout(weights=f"w{seed}"))
                    store(cache, layout, seed)
                    kept.append(seed)
        daemon.stop(tmp_socket_dir / "data")
        assert daemon.failed_syncs() == (74, [0])
    with Daemon(memory="32MiB", directory=tmp_socket_dir, keeper=False) as again, Cache.open(again.socket) as cache:
        assert verify(again.log_dir).ok
        assert cache.status().counters["layouts"] in {len(kept), len(kept) + 1}, "one may be there unanswered"
