"""The drill: the daemon stores, looks up, reads and verifies one block, as an engine would, and says which step fails.

That a process is there proves nothing, and that its loop turns proves little: a cache is well if what was stored comes
back. So each pass goes the whole way, through writer, log, copy workers and arena, with bytes and a prefix that were
never there before, and takes them away again.

It is a tenant of its own. Its look-ups count in nobody's hits, its objects make room in nobody's memory, and its one
arena of 64 KiB comes before what tenants are promised, so that a full cache is no sick one. The watchdog does not rest
on it: to kill a daemon whose memory is full would lose what it serves.
"""

import asyncio
import contextlib
import mmap
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import structlog

from kvledger.errors import KVLedgerError
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.mailbox import undoing
from kvledger.memfd import create_sealed, map_shared
from kvledger.shm import ArenaView
from kvledger.wire import replies, requests
from kvledger.wire.replies import Failed, Reply
from kvledger.wire.requests import Boundary, Request
from kvledgerd.core.commands import Ask, Caller, Command, EngineJoined
from kvledgerd.core.config import DRILL_TENANT
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.memory.rings import RingTable
from kvledgerd.tenants import User

__all__ = ["DRILL_LAYOUT", "Drill"]

# Connections of clients are numbered from 1 on.
_CONNECTION: Final = 0
_STEP_SECONDS: Final = 10.0
_OVERDUE: Final = 3
"""Intervals without a good pass after which something is wrong even if none has failed."""
_BYTES: Final = 4096
_TOKENS: Final = 16
_KIND: Final = Kind.COMPRESSED_KV
_GROUP: Final = GroupSpec(
    name="drill",
    kind=_KIND,
    form=Form.ROWS,
    layers=(0,),
    rows_per_page=_TOKENS,
    row_bytes=_BYTES // _TOKENS,
    page_bytes=_BYTES,
)
DRILL_LAYOUT: Final = Layout(
    model=DRILL_TENANT,
    weights_digest="none",
    tokenizer_digest="none",
    abi={"drill": KernelABI(name="none", page_bytes=_BYTES)},
    block_tokens=_TOKENS,
    groups=(_GROUP,),
)

R = TypeVar("R")
_log = structlog.get_logger(__name__)


class _StepFailedError(Exception):
    """A step of a pass did not do what it has to."""


class Drill:
    """Makes a pass now and then; used on the loop.

    Args:
        ask: Has a command decided and returns its reply once what it promises holds.
        post: Has a command decided for whose reply nobody waits.
        engine_number: Returns the number of a living engine, by tenant and key.
        rings: Where its staging ring goes.
        arenas: Where it reads.
        seconds: Between two passes; 0 if there are none.
    """

    def __init__(
        self,
        ask: Callable[[Command], Awaitable[Reply | None]],
        post: Callable[[Command], None],
        engine_number: Callable[[str, bytes], int | None],
        rings: RingTable,
        arenas: ArenaTable,
        seconds: int,
    ) -> None:
        self._command: Final = ask
        self._post: Final = post
        self._engine_number: Final = engine_number
        self._rings: Final = rings
        self._arenas: Final = arenas
        self._seconds = seconds
        self._changed: Final = asyncio.Event()
        self._caller: Caller | None = None
        self._ring: mmap.mmap | None = None
        self._undo: list[Request] = []
        self._step = ""
        self._well_at = time.monotonic()
        self._passes = self._failures = self._micros = 0
        self._why = ""

    def counters(self) -> dict[str, int]:
        """Return how the passes went."""
        age = time.monotonic() - self._well_at
        overdue = self._seconds > 0 and age > _OVERDUE * (self._seconds + _STEP_SECONDS)
        return {
            "drill_seconds": self._seconds,
            "drill_passes": self._passes,
            "drill_failures": self._failures,
            "drill_failing": int(bool(self._why) or overdue),
            "drill_age_ms": int(age * 1000) if self._seconds else 0,
            "drill_micros": self._micros,
        }

    def notes(self) -> dict[str, str]:
        """Return why the latest pass failed, if it did."""
        return {"drill": self._why} if self._why else {}

    def every(self, seconds: int) -> None:
        """Make passes so often from now on, the next one at once; 0 for none."""
        if seconds != self._seconds:
            self._seconds, self._well_at, self._why = seconds, time.monotonic(), ""
            self._changed.set()

    async def run(self) -> None:
        """Make passes until cancelled."""
        while True:
            if self._seconds:
                await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._seconds or None)
            self._changed.clear()

    async def look(self) -> None:
        """Make one pass, and note how it went."""
        began = time.monotonic()
        try:
            await self._pass()
        except (_StepFailedError, KVLedgerError, OSError, TimeoutError) as error:
            self._failures += 1
            self._why = f"{self._step}: {str(error) or f'no answer within {_STEP_SECONDS:g} s'}"
            _log.warning("the drill failed", step=self._step, why=self._why)
            self._tidy()
        else:
            self._well_at = time.monotonic()
            self._micros = int((self._well_at - began) * 1e6)
            self._why = ""
        self._passes += 1

    async def _pass(self) -> None:
        caller = self._caller = self._caller or await self._joined()
        ask = self._ask
        layout = (await ask("register", caller, requests.Register(DRILL_LAYOUT), replies.Registered)).layout
        at, data = Boundary(os.urandom(32)), os.urandom(_BYTES)
        reserve = requests.Reserve(layout, at, boundary=False)
        unit = (await ask("reserve", caller, reserve, replies.Reserved)).unit
        self._undo.append(requests.Abort(unit))
        assert self._ring is not None, "it was made when the engine joined"
        self._ring[:] = data
        part = requests.PutRange(_KIND, 0, 0, 0, _BYTES)
        await ask("put", caller, requests.Put(unit, [part]), replies.Done)
        await ask("commit", caller, requests.Commit(unit), replies.Committed)
        evict = requests.Evict(_KIND, layout, at, disk=True)
        self._undo = [evict]
        acquire = requests.Acquire(layout, _TOKENS + 1, at.hashes)
        hit = await ask("look up", caller, acquire, replies.Acquired)
        self._require(hit.usable_tokens == _TOKENS, f"{hit.usable_tokens} of {_TOKENS} tokens: {hit.cuts}")
        self._undo.append(requests.Release(hit.lease))
        await self._verify(hit, data)
        await ask("release", caller, requests.Release(hit.lease), replies.Done)
        self._undo.pop()
        gone = await ask("evict", caller, evict, replies.Evicted)
        self._require(gone == replies.Evicted(1), str(gone))
        self._undo.pop()

    async def _joined(self) -> Caller:
        """Become an engine with a ring, once."""
        self._step = "join"
        key = os.urandom(16)
        async with asyncio.timeout(_STEP_SECONDS):
            await self._command(EngineJoined(key, DRILL_TENANT, os.getuid(), os.getpid(), "drill"))
        engine = self._engine_number(DRILL_TENANT, key)
        self._require(engine is not None, "the engine was not taken")
        ring = create_sealed("kvledger-drill", _BYTES)
        self._ring = map_shared(ring, _BYTES, writable=True)
        self._rings.accept(_CONNECTION, User(DRILL_TENANT, os.getuid()), ring, _BYTES)
        return Caller(_CONNECTION, engine or 0, DRILL_TENANT)

    async def _ask(self, step: str, caller: Caller, request: Request, expected: type[R]) -> R:
        self._step = step
        asked = asyncio.ensure_future(self._command(Ask(caller, request)))
        done, _ = await asyncio.wait({asked}, timeout=_STEP_SECONDS)
        if not done:
            asked.add_done_callback(partial(self._came_late, caller))
            raise TimeoutError
        reply = asked.result()
        if isinstance(reply, Failed):
            raise _StepFailedError(f"{reply.code}: {reply.message}")
        if not isinstance(reply, expected):
            raise _StepFailedError(f"answered with {reply!r}")
        return reply

    def _came_late(self, caller: Caller, asked: asyncio.Future[Reply | None]) -> None:
        """Give back what an answer brings that nobody waited for: else sixteen of them fill the drill's arena."""
        reply = None if asked.cancelled() or asked.exception() else asked.result()
        for request in undoing(reply) if reply is not None else ():
            self._post(Ask(caller, request))

    async def _verify(self, hit: replies.Acquired, data: bytes) -> None:
        self._step = "read"
        (run,) = (*hit.rows, *hit.offers[0].runs)
        found = await asyncio.to_thread(_read, self._arenas.readable(run.arena), run)
        self._require(found is not None, "the generation of a leased object moved")
        self._step = "verify"
        self._require(found == data, "the bytes are not those that were stored")

    def _require(self, holds: bool, why: str) -> None:  # noqa: FBT001  what it is about stands at the call
        if not holds:
            raise _StepFailedError(why)

    def _tidy(self) -> None:
        """Give back what a pass that failed had got; nobody waits for it, since there may be nobody who answers."""
        undo, self._undo = self._undo, []
        for request in reversed(undo):
            if self._caller is not None:
                self._post(Ask(self._caller, request))


def _read(descriptor: int, run: replies.HandleRun) -> bytes | None:
    """Read an object as a client does; None if its generation moved."""
    view = ArenaView(descriptor)
    try:
        found = bytes(view.buffer(run.offset, run.length))
        return found if view.is_current(run.offset, run.generation, run.length) else None
    finally:
        view.close()
