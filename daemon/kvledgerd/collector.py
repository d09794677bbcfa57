"""Recovery without the collector of garbage: nothing that it makes can be garbage, and looking for it costs a third."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


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
