"""Identities of small arenas, and a count of open descriptors."""

import gc
from pathlib import Path

from kvledger.arena_header import ArenaIdentity

LOG = bytes(range(16))
BOOT = bytes(range(16, 32))
TENANT = bytes(32)
KIB = 1024


def identity(arena_id=7, log_id=LOG, boot_id=BOOT, tenant=TENANT, kind=3):
    """Return the identity of a test's arena."""
    return ArenaIdentity(log_id=log_id, boot_id=boot_id, arena_id=arena_id, tenant=tenant, kind=kind)


def open_descriptors():
    """Return how many descriptors this process has open, without those that only garbage of earlier tests holds."""
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
