"""The memory of a start: nothing that recovery makes is garbage, and what it only passed through is given back.

Looking for garbage meanwhile would cost a third of the time. What was read on the way, segments and the events in them,
leaves holes between what stays, and the C library keeps such holes for itself unless it is asked.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused", "keep_for_good"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the cyclic garbage collector from running in a `with` block; it may be nested."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def keep_for_good() -> None:
    """Take all that is alive now for something that stays, and give the room of all else back to the system.

    The collector looks through it no more: doing so again and again would stop the loop each time.
    """
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it, and needs it
    if trim is not None:
        trim(0)
