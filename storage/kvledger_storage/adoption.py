"""Which of the descriptors that a store gave back are the arenas that the log knows.

The store is outside of the daemon's power: it may return a region that nobody asked for, one twice, or one less. Each
of these costs at most a miss, so what can not be adopted is named, closed and dropped, and the start goes on.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvledger.errors import KVLedgerError
from kvledger_storage.arena import Arena, ArenaRefusedError

__all__ = ["Adoption", "KnownArena", "adopt_arenas", "store_name"]


@dataclass(frozen=True, slots=True)
class KnownArena:
    """What the replayed log says about one arena: its tenant's digest (32 bytes), its kind and its size in bytes."""

    tenant: bytes
    kind: int
    data_bytes: int


@dataclass(slots=True)
class Adoption:
    """What came of the descriptors.

    Attributes:
        arenas: Arena id to adopted arena.
        refused: For each descriptor that was closed instead, its name in the store and why. The store keeps its own
            copy until it is told to remove the name.
        absent: Ids that the log knows and the store did not return; their objects are dropped by event.
    """

    arenas: dict[int, Arena] = field(default_factory=dict)
    refused: list[tuple[str, KVLedgerError]] = field(default_factory=list)
    absent: frozenset[int] = frozenset()


def store_name(arena_id: int) -> str:
    """Return the name under which an arena goes into the descriptor store; for people, the header says what it is."""
    return f"arena-{arena_id}"


def adopt_arenas(
    store: Mapping[str, Sequence[int]], log_id: bytes, boot_id: bytes, known: Mapping[int, KnownArena]
) -> Adoption:
    """Adopt every descriptor that is an arena of this log, and close all others.

    Args:
        store: Name to descriptors, as the store gave them back; all of them change hands.
        log_id: Id of the replayed log, 16 bytes.
        boot_id: The machine's boot id, 16 bytes.
        known: The arenas of the replayed log.
    """
    adoption = Adoption()
    for name, fd in ((name, fd) for name, descriptors in store.items() for fd in descriptors):
        try:
            arena = Arena.adopt(fd, log_id, boot_id)
        except KVLedgerError as error:
            os.close(fd)
            adoption.refused.append((name, error))
            continue
        refusal = _disagreement(arena, known.get(arena.arena_id), adoption)
        if refusal is None:
            adoption.arenas[arena.arena_id] = arena
        else:
            arena.close()
            adoption.refused.append((name, refusal))
    adoption.absent = frozenset(known) - frozenset(adoption.arenas)
    return adoption


def _disagreement(arena: Arena, known: KnownArena | None, adoption: Adoption) -> ArenaRefusedError | None:
    if known is None:
        return _refused("arena_id", f"the log knows no arena {arena.arena_id}")
    if arena.arena_id in adoption.arenas:
        return _refused("arena_id", f"the store returned arena {arena.arena_id} twice")
    who = arena.header.identity
    found = KnownArena(who.tenant, who.kind, arena.data_bytes)
    for name in ("tenant", "kind", "data_bytes"):
        if getattr(found, name) != getattr(known, name):
            return _refused(name, f"arena {arena.arena_id} disagrees with the log")
    return None


def _refused(name: str, why: str) -> ArenaRefusedError:
    return ArenaRefusedError(why, field=f"arena.{name}", remedy="nothing to do: what it held becomes a miss")
