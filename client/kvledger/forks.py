"""What a forked child must not share with its parent.

After a fork both processes hold the same sockets, and bytes of one would be taken for bytes of the other; the maps of
arenas and ring are gone from the child (MADV_DONTFORK), though their Python objects are not. So in the child every open
cache is told at once: it closes its descriptors without shutting the parent's connection down, takes a new engine id,
and opens its own connection at its next call.

Objects of maps that the child did not inherit are kept for ever: freeing one would unmap its old addresses, where the
child may have put something else since.
"""

import os
import weakref
from typing import Protocol

__all__ = ["keep_for_ever", "watch"]


class Forked(Protocol):
    """Something that a child must let go of."""

    def after_fork_in_child(self) -> None:
        """Let go of what belongs to the parent; runs in the child before anything else does."""


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()
_kept: list[object] = []
_registered = False


def watch(cache: Forked) -> None:
    """Have `after_fork_in_child` called in every child of this process, as long as the cache lives."""
    global _registered  # noqa: PLW0603 - registering cannot be undone, so it is done once, and not at import
    if not _registered:
        _registered = True
        os.register_at_fork(after_in_child=_tell_all)
    _watched.add(cache)


def keep_for_ever(*objects: object) -> None:
    """Never free these objects; see the top of this file."""
    _kept.extend(objects)


def _tell_all() -> None:
    for cache in list(_watched):
        cache.after_fork_in_child()
