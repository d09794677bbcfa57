"""Memory that was changed behind the daemon's back: refused with its reason, and nobody else is hurt."""

import os
from pathlib import Path

from kvledger import Cache
from kvledger.testing import Daemon
from support.tiny import check, prompt, store, tiny_layout


def damage(pid: int, marker: bytes) -> int:
    """Change a byte behind `marker` in whichever arena holds it, as a process of the daemon's uid could."""
    changed = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if "memfd" not in str(link.readlink()):
            continue
        try:
            fd = os.open(link, os.O_RDWR)
        except OSError:
            continue
        at = os.pread(fd, os.fstat(fd).st_size, 0).find(marker)
        if at >= 0:
            changed += os.pwrite(fd, b"!", at)
        os.close(fd)
    return changed


def test_adopted_bytes_that_changed_cost_one_miss_and_no_daemon():
    """After a restart, each of three damaged prompts is refused as damaged, the fourth is a hit, the daemon lives."""
    with Daemon(memory="64MiB") as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        for seed in range(4):
            store(cache, layout, seed)
        assert all(damage(daemon.pid, f"prompt {seed} tail at".encode()) for seed in range(3))
        daemon.kill()
        daemon.wait_ready()

        for seed in range(3):
            with cache.acquire(layout, [*prompt(seed), 7]) as hit:
                assert not hit
                assert "bytes_damaged" in hit.why
        assert check(cache, layout, 3) == 50
        assert cache.status().incarnation == 2
        assert cache.status().counters["decision_faults"] == 0
