"""A word to those who drop what they should have given back.

A hit or unit that nobody holds any more keeps its lease or reservation until the connection ends, and memory of the
daemon with it. It is not given back in `__del__`: the collector runs in any thread, inside any call, where a request
could wait for a turn that this very thread holds. So it is told, as Python tells of files that were not closed.
"""

import sys
import warnings

__all__ = ["warn_dropped"]


def warn_dropped(what: object, remedy: str) -> None:
    """Warn that something was dropped, with its repr and what to do; says nothing while the interpreter ends.

    Raises:
        ResourceWarning: Warnings are errors; raised in `__del__` it is printed, as Python does with all errors there.
    """
    if not sys.is_finalizing():
        warnings.warn(f"{what!r} was dropped; {remedy}", ResourceWarning, stacklevel=3, source=what)
