"""Arenas of a running daemon, compared with what the state says of them: generations always, bytes on request.

The arenas are found among the descriptors of the daemon's process and opened for reading only. That needs its uid or
root, and no tenant's rights: whoever checks a daemon checks it whole.
"""

import os
from contextlib import suppress
from pathlib import Path

from kvledger.errors import KVLedgerError
from kvledger.shm import ArenaView
from kvledger_storage.disk import fingerprint_of
from kvledgerd.checking.claims import MemoryClaim

__all__ = ["ArenaMemory"]

_NAME = "/memfd:kvledger-arena-"


class ArenaMemory:
    """The arenas of one log in a daemon's memory.

    Args:
        pid: The daemon's process.
        log_id: Id of its log, 16 bytes.
        deep: Whether all bytes are read and compared with their fingerprints.

    Raises:
        OSError: The process can not be looked into.
    """

    def __init__(self, pid: int, log_id: bytes, *, deep: bool) -> None:
        self._deep = deep
        self._views: dict[int, ArenaView] = {}
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if entry.readlink().as_posix().startswith(_NAME):
                    self._open(entry, log_id)

    def _open(self, entry: Path, log_id: bytes) -> None:
        descriptor = os.open(entry, os.O_RDONLY | os.O_CLOEXEC)
        try:
            view = ArenaView(descriptor)
        except KVLedgerError:  # one that is being made; what the state says of it can not be committed yet
            return
        finally:
            os.close(descriptor)
        identity = view.header.identity
        if identity.log_id == log_id:
            self._views[identity.arena_id] = view

    def close(self) -> None:
        """Drop all maps."""
        for view in self._views.values():
            view.close()

    def copy(self, claim: MemoryClaim) -> bytes | None:
        """Return the bytes of a claim; None if they are not there, or went while they were copied."""
        view = self._views.get(claim.arena)
        if view is None:
            return None
        found = bytes(view.buffer(claim.offset, claim.length))
        return found if view.is_current(claim.offset, claim.generation, claim.length) else None

    def wrong(self, claim: MemoryClaim) -> str:
        """Return what does not fit a claim, empty if all does."""
        name = f"cell {claim.cell} slot {claim.slot}, in arena {claim.arena} at {claim.offset}"
        view = self._views.get(claim.arena)
        if view is None:
            return f"{name}: the daemon has no such arena"
        if not view.is_current(claim.offset, claim.generation, claim.length):
            found = view.generation(claim.offset)
            return f"{name} has generation {found} in the arena's table, the log says {claim.generation}"
        if self._deep and fingerprint_of(view.buffer(claim.offset, claim.length)) != claim.fingerprint:
            return f"{name}: the bytes are not those that were committed"
        return ""
