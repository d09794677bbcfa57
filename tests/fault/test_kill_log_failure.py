"""A log that can not be written: nothing more is acknowledged, the daemon ends, and the next one knows all that was."""

from __future__ import annotations

import resource

from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.testing import Daemon
from support.tiny import check, store, tiny_layout


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
