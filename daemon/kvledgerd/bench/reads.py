"""Reading through a handle: what handing out costs, whatever the size, and what the copy costs beside a plain one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

from kvledger import Cache, Handle
from kvledger.testing import Daemon
from kvledgerd.bench.contents import check_hit, put_all
from kvledgerd.bench.figures import Goal, Measured, Sense
from kvledgerd.bench.layouts import MIB, one_snapshot
from kvledgerd.bench.rounds import in_turns, median_seconds, speeds, timed
from kvledgerd.bench.scale import Scale

__all__ = ["read"]

_GIB: Final = 1 << 30
_NANO: Final = 1e9
_BOUNDARY: Final = 16
_PROMPT: Final = tuple(range(_BOUNDARY + 1))
_CALLS_OF_ONE: Final = 200

# Two medians of a few hundred nanoseconds: what lies within this of one another is equal on a machine that others use.
_EQUAL: Final = 1.25


def read(scale: Scale) -> Iterator[Measured]:
    """Objects of several sizes, leased once."""
    # Twice the objects: a share of the memory stays free for each kind of state that has none yet.
    daemon = Daemon(memory=f"{2 * sum(scale.read_bytes) // MIB + 64}MiB", keeper=False)
    with daemon, Cache.open(daemon.socket) as cache, ExitStack() as stack:
        handles = {size: _leased(cache, size, stack) for size in reversed(scale.read_bytes)}
        yield from _hand_outs(handles, scale)
        for size in scale.read_bytes:
            yield _copies(handles[size], scale.rounds)


def _leased(cache: Cache, size: int, stack: ExitStack) -> Handle:
    """Commit one object and return its handle, leased until the stack is left."""
    layout = cache.register(one_snapshot(size))
    with cache.reserve(layout, _PROMPT, boundary=_BOUNDARY) as unit:
        put_all(unit)
    check_hit(cache, layout, _PROMPT, _BOUNDARY)
    (handle,) = stack.enter_context(cache.acquire(layout, _PROMPT))
    return handle


def _hand_outs(handles: dict[int, Handle], scale: Scale) -> Iterator[Measured]:
    """From the leased hit to readable bytes."""

    def measured(size: int) -> Callable[[], float]:
        handle = handles[size]
        return lambda: median_seconds(lambda: handle.buffer, _CALLS_OF_ONE) * _NANO

    first, goal = scale.read_bytes[0], Goal(Sense.AT_MOST, _EQUAL)
    for size in scale.read_bytes[1:]:
        pairs = in_turns(measured(size), measured(first), scale.rounds)
        yield Measured(f"hand out {_short(size)}", "ns", f"hand out {_short(first)}", goal, pairs)


def _copies(handle: Handle, rounds: int) -> Measured:
    """Copy an object out, and as many bytes of this process's own."""
    lent, size = handle.buffer, handle.length
    own, target = memoryview(bytearray(lent)), memoryview(bytearray(size))

    def from_cache() -> None:
        target[:] = lent

    def from_own() -> None:
        target[:] = own

    pairs = in_turns(lambda: timed(from_cache), lambda: timed(from_own), rounds)
    return Measured(f"read {_short(size)}", "GiB/s", "memcpy of the same", None, speeds(pairs, size / _GIB))


def _short(size: int) -> str:
    return f"{size / MIB:g} MiB"
