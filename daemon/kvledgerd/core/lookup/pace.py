"""How fast the disk gives back what it is asked for, as the restores so far have shown.

A restore of many bytes says more about that than one of few, so bytes and time are added up, and their ratio is the
rate. Both are halved now and then, so that a disk that became slow is believed to be slow after a while.
"""

from kvledgerd.core.state import State

__all__ = ["REMEMBERED_MICROS", "note_restore", "restore_ms", "restored_per_second"]

REMEMBERED_MICROS = 10_000_000
"""Time of reading behind which older restores count half, microseconds."""


def note_restore(state: State, size: int, micros: int) -> None:
    """Take in what one restore brought, in bytes, and how long it took; without either it tells nothing."""
    if not size or not micros:
        return
    state.restored_bytes += size
    state.restored_micros += micros
    while state.restored_micros > REMEMBERED_MICROS:
        state.restored_bytes = max(state.restored_bytes // 2, 1)
        state.restored_micros //= 2


def restore_ms(state: State, size: int) -> int:
    """Return how long reading so many bytes takes at the rate of the restores so far, ms; 0 before the first."""
    return size * state.restored_micros // state.restored_bytes // 1000 if state.restored_bytes else 0


def restored_per_second(state: State) -> int:
    """Return the rate of restores in bytes a second, 0 as long as none was measured."""
    return state.restored_bytes * 1_000_000 // state.restored_micros if state.restored_micros else 0
