"""One refused look-up for each reason code, made on the real core, and its log as a daemon would have left it.

docs/verdict.md takes its examples from here, so that they are what the program says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from kvledger.epochs import EpochState
from kvledger.kinds import Form, Kind
from kvledger.layout import KernelABI, Layout
from kvledger.verdict import Code, Cut
from kvledger.wire.requests import SetEpoch
from kvledger_storage import events
from kvledger_storage.log import EventLog
from kvledgerd.core.commands import DegradeDue
from kvledgerd.core.index import ARENA, OFFSET
from support.layouts import golden, pick
from support.lossy import config, lossy_layout
from support.world import User, World, group

__all__ = ["EXPLAINED", "PROMPT", "REFUSED", "cut_of", "write_log"]

PROMPT = list(range(600))
BEGAN_MS = 1_764_417_600_000
EVENT_MS = 1000


def _stored(made: Layout | None = None, *ends: int) -> tuple[World, User, int]:
    """A world in which the prompt is stored up to each of these boundaries."""
    world = World()
    user = world.engine("serving")
    number = user.register(made or golden())
    for end in ends or (256, 512):
        user.store(number, PROMPT, end)
    return world, user, number


def _lost(made: Layout, name: str, **where: int) -> World:
    """The prompt is stored and one object of a group is dropped before it is asked for."""
    world, user, number = _stored(made)
    user.evict(number, PROMPT, 512, name, **where)
    user.acquire(number, PROMPT)
    return world


def _nothing() -> World:
    world, user, number = _stored()
    user.acquire(number, [7, *PROMPT])
    return world


def _end_of_prompt(tokens: int = 600, **asked: int) -> World:
    world, user, number = _stored()
    user.acquire(number, PROMPT[:tokens], **asked)
    return world


def _other(**fields: object) -> World:
    world, user, _ = _stored()
    user.acquire(user.register(replace(golden(), **fields)), PROMPT)
    return world


def _other_run() -> World:
    """Rows are lost, and another run stores its own in their place, beside the states of the first."""
    world, user, number = _stored(pick("CM", strict_provenance=True), 256, 512)
    user.evict(number, PROMPT, 512, "C", block=1)
    user.acquire(number, PROMPT)
    unit = user.reserve(number, PROMPT, 512, first_block=1, boundary=False)
    user.fill(unit, seed=1)
    user.commit(unit)
    user.acquire(number, PROMPT)
    return world


def _retired() -> World:
    world, user, number = _stored()
    user.ok(SetEpoch("test", "w1", EpochState.RETIRED))
    user.acquire(number, PROMPT[:512])
    return world


def _uneven() -> World:
    """Two tokens behind the last whole block: no row ends there, and no group keeps a tail."""
    world, user, number = _stored(pick("C"), 512)
    user.acquire(number, PROMPT[:515])
    return world


def _uncoupled() -> World:
    """Keys that replace lost ones beside rows of an older commit: no daemon commits that, a log could hold it."""
    world, user, number = _stored(pick("CX"), 512)
    user.evict(number, PROMPT, 512, "X", block=1)
    unit = user.reserve(number, PROMPT, 512, first_block=1)
    user.fill(unit, seed=1)
    held = world.state.units[unit.unit]
    rows = tuple(i for i in held.missing() if held.objects[i].group == 0)
    world.record([events.UnitCommitted(unit.unit, world.state.serial, rows, rows)])
    user.acquire(number, PROMPT)
    return world


def _halo() -> World:
    tail = group("T", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT, coupled_to="C", halo_rows=4)
    made = replace(pick("C"), groups=(*pick("C").groups, tail), abi=pick("C").abi | {"T": KernelABI(name="plain")})
    return _lost(made, "T", block=-1)


def _on_disk() -> World:
    world, user, number = _stored(None, 512)
    user.offload(number, PROMPT, 512)
    user.acquire(number, PROMPT, restore=False)
    return world


def _slow_disk() -> World:
    """The disk needed two seconds for what is now asked for, which the engine computes in five milliseconds."""
    world, user, number = _stored(None, 512)
    world.restore_micros = 2_000_000
    user.offload(number, PROMPT, 512)
    user.restore(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    user.acquire(number, PROMPT, recompute=100_000)
    return world


def _degraded() -> World:
    """The disk failed more often than it may."""
    world, user, number = _stored(None, 512)
    user.offload(number, PROMPT, 512)
    world.do(DegradeDue("5 restores failed within 60 s, the last one: failed: not read within 30 s"))
    user.acquire(number, PROMPT)
    return world


def _lossy() -> World:
    """Rows went to disk quantised, and the memory copies went with the engine's wish."""
    world = World(config())
    user = world.engine("serving")
    number = user.register(lossy_layout())
    for end in (256, 512):
        user.store(number, PROMPT, end)
    user.offload(number, PROMPT, 512)
    user.acquire(number, PROMPT)
    return world


def _damaged() -> World:
    world, _, number = _stored(None, 512)
    cell = next(c for c in world.state.cells.values() if not c.is_block or c.node.depth == 2)
    place = (cell.word(0, ARENA), cell.word(0, OFFSET))
    world.restart()
    world.memory[place] = b"rot" + world.memory[place][3:]
    world.engine("serving").acquire(number, PROMPT)
    return world


REFUSED: dict[Code, Callable[[], World]] = {
    Code.NO_MATCH: _nothing,
    Code.BELOW_BLOCK: _end_of_prompt,
    Code.LEAVE: lambda: _end_of_prompt(512),
    Code.ALIGNMENT: lambda: _end_of_prompt(600, align=192),
    Code.UNEVEN: _uneven,
    Code.ABI_MISMATCH: lambda: _other(abi=golden().abi | {"rows": KernelABI(name="plain", number=2)}),
    Code.IDENTITY_MISMATCH: lambda: _other(weights_digest="w2"),
    Code.EPOCH_RETIRED: _retired,
    Code.OTHER_RUN: _other_run,
    Code.ROWS_MISSING: lambda: _lost(pick("CXST"), "C", block=1),
    Code.INDEXER_MISSING: lambda: _lost(pick("CXST"), "X", block=1),
    Code.INDEXER_UNCOUPLED: _uncoupled,
    Code.WINDOW_MISSING: lambda: _lost(golden(), "a64", block=1, page=3),
    Code.TAIL_MISSING: lambda: _lost(golden(), "t4", block=1, page=63),
    Code.HALO_MISSING: _halo,
    Code.ON_DISK: _on_disk,
    Code.RESTORE_COST: _slow_disk,
    Code.DEGRADED: _degraded,
    Code.LOSSY: _lossy,
    Code.BYTES_DAMAGED: _damaged,
    Code.MINIMUM: lambda: _end_of_prompt(600, minimum=513),
}
"""Each makes a world whose last look-up was cut for that reason."""

EXPLAINED = {"page": Code.TAIL_MISSING, "weights": Code.IDENTITY_MISMATCH, "keys": Code.INDEXER_MISSING}
"""The three that docs/verdict.md shows in full."""


def cut_of(world: World, code: Code) -> Cut:
    """Return the cut of that reason in the last look-up's event."""
    event = next(e for raw in reversed(world.log) if isinstance(e := events.decode(raw).event, events.LookedUp))
    return next(cut for cut in event.cuts if cut.code is code)


def write_log(world: World, data: Path) -> int:
    """Write what happened in a world as the log of a data directory, an event a second; return its last seq."""
    written = threading.Event()
    log = EventLog.open(data / "log", segment_bytes=1 << 20)
    try:
        writer = log.writer(1, lambda *_: written.set(), lambda _: None)
        batch = [_timed(raw, number) for number, raw in enumerate(world.log)]
        last: int = writer.submit([batch], durable=False)
        assert written.wait(60)
    finally:
        log.close()
    return last


def _timed(raw: bytes, number: int) -> bytes:
    logged = events.decode(raw)
    return events.encode(logged.event, BEGAN_MS + number * EVENT_MS, logged.actor)
