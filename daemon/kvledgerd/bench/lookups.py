"""Rows about looking up: one prompt of 128 blocks, and prompts up to a million tokens."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

from kvledgerd.bench.contents import require
from kvledgerd.bench.figures import Goal, Measured, Pair, Sense
from kvledgerd.bench.layouts import five_groups
from kvledgerd.bench.lookup_cycle import Cycle
from kvledgerd.bench.rounds import in_turns, median_seconds
from kvledgerd.bench.scale import Scale
from kvledgerd.bench.served import Served, bare_server, look_up, served

__all__ = ["acquire", "prompts"]

_MICRO: Final = 1e6
_NANO: Final = 1e9
_BLOCK_TOKENS: Final = 128
_LONG_BLOCK_TOKENS: Final = 256


def acquire(scale: Scale) -> Iterator[Measured]:
    """A hit with its lease and release: frame by frame, and as the client library does it from tokens on."""
    boundary = scale.blocks * _BLOCK_TOKENS
    with served(five_groups(_BLOCK_TOKENS), [boundary]) as there, ExitStack() as stack:
        client, request = stack.enter_context(look_up(there, boundary))
        other = stack.enter_context(bare_server(there, boundary))()
        stack.callback(other.close)
        ours, bare = Cycle(client, request), Cycle(other, request)
        library = _through_library(there, boundary)

        def measured(work: Callable[[], None]) -> Callable[[], float]:
            return lambda: median_seconds(work, scale.calls) * _MICRO

        peer = "bare asyncio server, frames of the same sizes"
        pairs = in_turns(measured(ours.run), measured(bare.run), scale.rounds)
        yield Measured(f"acquire {scale.blocks} blocks", "us", peer, Goal(Sense.AT_MOST, 2.5), pairs)
        pairs = in_turns(measured(library), measured(bare.run), scale.rounds)
        yield Measured(f"acquire {scale.blocks} blocks, hashing included", "us", peer, None, pairs)


def _through_library(there: Served, boundary: int) -> Callable[[], None]:
    prompt = there.prompt(boundary)

    def look_up_once() -> None:
        with there.cache.acquire(there.layout, prompt) as hit:
            require(hit.tokens == boundary, f"a hit of {boundary} tokens")

    return look_up_once


def prompts(scale: Scale) -> Iterator[Measured]:
    """Longer prompts: what one hash costs, beside what it costs in the shortest."""
    first = scale.prompts[0]
    with served(five_groups(_LONG_BLOCK_TOKENS), scale.prompts, "512MiB") as there, ExitStack() as stack:

        def measured(boundary: int) -> Callable[[], float]:
            cycle = Cycle(*stack.enter_context(look_up(there, boundary)))
            blocks, calls = boundary // _LONG_BLOCK_TOKENS, max(scale.calls * first // boundary, 3)
            return lambda: median_seconds(cycle.run, calls) / blocks * _NANO

        shortest = measured(first)
        for boundary in scale.prompts[1:]:
            pairs: list[Pair] = in_turns(measured(boundary), shortest, scale.rounds)
            goal = Goal(Sense.AT_MOST, 1.0)
            yield Measured(f"acquire {_short(boundary)} tokens", "ns a hash", f"{_short(first)} tokens", goal, pairs)


def _short(tokens: int) -> str:
    return f"{tokens >> 20}M" if tokens >= 1 << 20 else f"{tokens >> 10}k"
