"""What a forked child must not share with its parent.

After a fork both processes hold the same sockets, and bytes of one would be taken for bytes of the other; the maps of
arenas and ring are gone from the child (MADV_DONTFORK), though their Python objects are not. So in the child every open
cache is told at once: it closes its descriptors without shutting the parent's connection down, takes a new engine id,
and opens its own connection at its next call.

Objects of maps that the child did not inherit are never freed there: freeing one would unmap its old addresses, where
the child may have put something else since (seen as a segmentation fault of an unrelated byte string).
"""

import mmap
import os
import weakref
from typing import Protocol

__all__ = ["watch", "watch_map"]


class Forked(Protocol):
    """Something that a child must let go of."""

    def after_fork_in_child(self) -> None:
        """Let go of what belongs to the parent; runs in the child before anything else does."""


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()
_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
_registered = False


def watch(cache: Forked) -> None:
    """Have `after_fork_in_child` called in every child of this process, as long as the cache lives."""
    _register()
    _watched.add(cache)


def watch_map(area: mmap.mmap) -> None:
    """Never free a map in a child, which did not inherit its memory."""
    _register()
    _maps.add(area)


def _register() -> None:
    global _registered  # noqa: PLW0603 - registering cannot be undone, so it is done once, and not at import
    if not _registered:
        _registered = True
        os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    _never_free(list(_maps))
    for cache in list(_watched):
        cache.after_fork_in_child()


def _never_free(areas: list[mmap.mmap]) -> None:
    # A list of this module would be emptied when the interpreter ends, and the maps freed with it.
    import ctypes  # noqa: PLC0415 - only children that hold maps pay for it

    for area in areas:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(area))
    _maps.clear()
