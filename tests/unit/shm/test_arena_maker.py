"""An arena is used only once the descriptor store has said that it holds it."""

from __future__ import annotations

import os

import pytest

from kvledger import Kind
from kvledgerd.core.decision import MakeArena
from kvledgerd.keeper.notify import NotifyError
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.workers.memory_jobs import ArenaMaker

EFFECT = MakeArena(1, 7, "default", Kind.COMPRESSED_KV, 1 << 20)


class Store:
    """Notes what it is told, and how many arenas were in use then.

    Args:
        arenas: Those in use.
        fails: Whether it leaves a barrier unanswered.
    """

    present = True

    def __init__(self, arenas: ArenaTable, *, fails: bool = False) -> None:
        self._arenas, self._fails = arenas, fails
        self.told: list[tuple[str, int]] = []
        self.fd = -1

    def store(self, _: str, fds: list[int]) -> None:
        """Take an arena."""
        self.told.append(("store", len(self._arenas)))
        (self.fd,) = fds

    def barrier(self) -> None:
        """Say that all before it is held."""
        self.told.append(("barrier", len(self._arenas)))
        if self._fails:
            raise NotifyError("no answer", field="NOTIFY_SOCKET", remedy="look at the manager")

    def remove(self, _: str) -> None:
        """Forget an arena."""
        self.told.append(("remove", len(self._arenas)))


def test_an_arena_waits_for_the_barrier():
    """It is stored, then the barrier is waited for, and only then is there one arena more."""
    arenas = ArenaTable()
    store = Store(arenas)
    ArenaMaker(arenas, store, bytes(16), bytes(16)).make(EFFECT)
    assert store.told == [("store", 0), ("barrier", 0)]
    assert len(arenas) == 1
    os.close(arenas.readable(7))
    arenas[7].close()


def test_an_arena_whose_barrier_is_not_answered_is_none():
    """It is taken back from the store, its memory is given up, and nobody will place anything in it."""
    arenas = ArenaTable()
    store = Store(arenas, fails=True)
    with pytest.raises(NotifyError):
        ArenaMaker(arenas, store, bytes(16), bytes(16)).make(EFFECT)
    assert store.told == [("store", 0), ("barrier", 0), ("remove", 0)]
    assert len(arenas) == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(store.fd)
