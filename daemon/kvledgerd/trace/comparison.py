"""One capacity, all policies: the real core beside the standard ones and what could be had."""

import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kvledger.geometry import Geometry
from kvledger.layout import Layout
from kvledgerd.core.config import PAGE, CoreConfig
from kvledgerd.core.placement.pools import paged
from kvledgerd.trace.arc import Arc
from kvledgerd.trace.belady import min_hits
from kvledgerd.trace.engine import Engine
from kvledgerd.trace.gdsf import Gdsf
from kvledgerd.trace.lru import Lru
from kvledgerd.trace.policy import Policy, hits_of
from kvledgerd.trace.requests import Trace
from kvledgerd.trace.s3_fifo import S3Fifo

__all__ = ["STANDARD", "Share", "block_bytes", "compare"]

STANDARD: Final[dict[str, Callable[[int], Policy]]] = {"LRU": Lru, "S3-FIFO": S3Fifo, "ARC": Arc, "GDSF": Gdsf}
"""The policies that the best is taken of."""
_ARENAS: Final = 64


class Share(msgspec.Struct, frozen=True):
    """What one capacity gives; rates are hits in leading runs over all blocks of all requests.

    Attributes:
        share: Capacity, percent of the unique blocks.
        hit: Rate of kvledger.
        lru: Rate of LRU.
        best_standard: Rate of the best of LRU, S3-FIFO, ARC and GDSF.
        min: Rate of Belady's MIN.
        best: Name of that best policy.
        standard: Rate of each standard policy.
        capacity_blocks: Blocks that every policy may hold.
        bytes: Memory of the core.
        events: Events that the core wrote.
        evicted: Copies that made room in it.
        refused: Units for which it had no room.
        decisions_per_second: Decisions it made, each applied, per second of processor time.
    """

    share: float
    hit: float
    lru: float
    best_standard: float
    min: float
    best: str
    standard: dict[str, float]
    capacity_blocks: int
    bytes: int
    events: int
    evicted: int
    refused: int
    decisions_per_second: int


def block_bytes(layout: Layout) -> int:
    """Return the bytes that the rows of one block take, in whole pages."""
    geometry = Geometry(layout)
    slots = (slot.group for slot in geometry.block_slots)
    return sum(paged(geometry.length(group)) for group in slots if group in geometry.rows)


def compare(trace: Trace, layout: Layout, share: float, blocks: int, tick: Callable[[], None] | None = None) -> Share:
    """Replay a trace at one capacity.

    Args:
        trace: The requests.
        layout: What the core stores for them.
        share: The capacity in percent of the unique blocks, for the record.
        blocks: The capacity in blocks.
        tick: Is called after each request of each replay.
    """
    memory = max(1, blocks) * block_bytes(layout)
    engine = Engine(_config(memory, layout), layout)
    began = time.process_time()
    hits = sum(_ticking((engine.serve(request) for request in trace.requests), tick))
    took = time.process_time() - began
    rates = {name: hits_of(make(blocks), trace.requests, tick) / trace.blocks for name, make in STANDARD.items()}
    best = max(rates, key=rates.__getitem__)
    return Share(
        share=share,
        hit=hits / trace.blocks,
        lru=rates["LRU"],
        best_standard=rates[best],
        min=min_hits(trace.requests, blocks) / trace.blocks,
        best=best,
        standard=rates,
        capacity_blocks=blocks,
        bytes=memory,
        events=engine.events,
        evicted=engine.evicted,
        refused=engine.refused,
        decisions_per_second=int(engine.decisions / max(took, 1e-9)),
    )


def _config(memory: int, layout: Layout) -> CoreConfig:
    """Return caps for so much memory: one arena where all is of one kind, else arenas that kinds can pass on."""
    kinds = {group.kind for group in layout.groups}
    arena = memory if len(kinds) == 1 else max(PAGE, memory // _ARENAS // PAGE * PAGE)
    return CoreConfig(memory_bytes=memory, arena_bytes=arena, max_objects=1 << 40)


def _ticking(hits: Iterable[int], tick: Callable[[], None] | None) -> Iterable[int]:
    for hit in hits:
        yield hit
        if tick is not None:
            tick()
