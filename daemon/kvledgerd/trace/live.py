"""Driving a running daemon through the client library: real bytes, and every byte of a hit is compared."""

import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Final

import msgspec

from kvledger import Cache
from kvledger.errors import CapacityError
from kvledger.registered import RegisteredLayout
from kvledgerd.trace.layouts import PLAIN, trace_layout
from kvledgerd.trace.requests import Trace

__all__ = ["LiveResult", "drive"]

_TOKENS: Final = 1 << 31


class LiveResult(msgspec.Struct):
    """What came of it.

    Attributes:
        hits: Blocks that hit.
        verified: Bytes of hits that were read and compared.
        wrong: Blocks with other bytes than were stored.
        stored: Bytes that were handed in.
        refused: Prompts that the daemon had no room for.
        seconds: How long it took.
    """

    hits: int = 0
    verified: int = 0
    wrong: int = 0
    stored: int = 0
    refused: int = 0
    seconds: float = 0.0


def drive(
    trace: Trace, socket: str, block_tokens: int, block_bytes: int, tick: Callable[[], None] | None = None
) -> LiveResult:
    """Look up, read and store every request of a trace, one after the other.

    Args:
        trace: The requests.
        socket: Where the daemon listens.
        block_tokens: Tokens of a block.
        block_bytes: Bytes that are stored for each block.
        tick: Is called after each request.

    Raises:
        KVLedgerError: The daemon refuses, or nobody listens there.
    """
    result, began = LiveResult(), time.monotonic()
    with Cache.open(socket, name="trace") as cache:
        layout = cache.register(trace_layout(PLAIN, block_tokens, block_bytes))
        for request in trace.requests:
            _serve(cache, layout, request, result)
            if tick is not None:
                tick()
    result.seconds = time.monotonic() - began
    return result


def _serve(cache: Cache, layout: RegisteredLayout, blocks: list[int], result: LiveResult) -> None:
    size = layout.layout.block_tokens
    tokens = [token for block in blocks for token in islice(_tokens(block, size), size)]
    with cache.acquire(layout, tokens, leave=0) as hit:
        found = hit.tokens // size
        result.hits += found
        for handle in hit:
            block = blocks[handle.first_token // size]
            result.verified += handle.length
            result.wrong += bytes(handle.buffer) != _content(block, handle.length)
    if found == len(blocks):
        return
    try:
        with cache.reserve(layout, tokens) as unit:
            for slot in unit.objects:
                if not slot.present:
                    data = _content(blocks[slot.first_token // size], slot.length)
                    unit.put(slot, data)
                    result.stored += len(data)
    except CapacityError:
        result.refused += 1


def _tokens(block: int, size: int) -> Iterator[int]:
    """Yield tokens that say which block they are of; equal ids stand behind equal prefixes, so these hash alike."""
    yield block % _TOKENS
    yield block // _TOKENS
    for _ in range(size - 2):
        yield 0


def _content(block: int, length: int) -> bytes:
    name = blake2b(block.to_bytes(8, "big"), digest_size=64).digest()
    return (name * (length // len(name) + 1))[:length]
