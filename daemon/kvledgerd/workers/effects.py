"""Carrying effects out: the table from what the core wants done to the lane that does it.

Nothing is decided here. Each effect that names a job is answered with one command, also when its connection, its arena
or its disk is gone by now; the core decides anew what the answer means.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kvledger_storage.log import Anchor, EventLog
from kvledgerd.core.commands import ArenaFailed, Command, Converted, Copied, Moved, Verified
from kvledgerd.core.decision import (
    ArchiveSegments,
    ClearArena,
    ConvertSlots,
    CopyIn,
    DiskProbe,
    DiskRead,
    DiskWrite,
    DropBlobs,
    Effect,
    Later,
    MakeArena,
    MoveSlots,
    RetireSegments,
    SetGenerations,
    VerifySlots,
    WarmUp,
)
from kvledgerd.memory.rings import RingTable
from kvledgerd.tensors.worker import TensorWorker
from kvledgerd.workers.background import Background, reason
from kvledgerd.workers.memory_jobs import ArenaMaker, Hashing, SlotFiller, is_whole, set_generations
from kvledgerd.workers.workers import Workers

__all__ = ["EffectCarrier"]

# The first is decided at once, for what was stored last may go next; what many more ask for within this time, once.
_LATER_SECONDS: Final = 0.001


class EffectCarrier:
    """Carries effects out; used on the loop, where nothing it does waits.

    Args:
        post: Takes answers that need no worker.
        workers: The lanes.
        rings: Where bytes come from.
        filler: Fills and hashes slots.
        maker: Makes arenas.
        tensors: Works on tensors.
        background: Queues what is read from disk and written to it.
        warm: Runs warm-ups.
        log: The log, whose past it archives and retires.
    """

    def __init__(
        self,
        post: Callable[[Command], None],
        workers: Workers,
        rings: RingTable,
        filler: SlotFiller,
        maker: ArenaMaker,
        tensors: TensorWorker,
        background: Background,
        warm: Callable[[WarmUp], None],
        log: EventLog,
    ) -> None:
        self._post: Final = post
        self._workers: Final = workers
        self._rings: Final = rings
        self._filler: Final = filler
        self._maker: Final = maker
        self._tensors: Final = tensors
        self._log: Final = log
        self._due: Final[set[Command]] = set()
        self._said = 0.0
        self._table: Final[dict[type[Effect], Callable[[Any], None]]] = {
            CopyIn: self._copy_in,
            ConvertSlots: self._convert,
            SetGenerations: partial(set_generations, arenas=maker.arenas),
            MakeArena: self._make_arena,
            ClearArena: self._clear_arena,
            MoveSlots: self._move,
            VerifySlots: self._verify,
            DiskWrite: background.write,
            DiskRead: background.read,
            DropBlobs: background.drop,
            DiskProbe: background.probe,
            Later: self._later,
            WarmUp: warm,
            ArchiveSegments: self._archive,
            RetireSegments: self._retire,
        }

    def carry(self, effect: Effect) -> None:
        """Start one effect and return."""
        self._table[type(effect)](effect)

    def _later(self, effect: Later) -> None:
        if effect.command not in self._due:
            self._due.add(effect.command)
            asyncio.get_running_loop().call_at(self._said + _LATER_SECONDS, self._say, effect.command)

    def _say(self, command: Command) -> None:
        self._due.discard(command)
        self._said = asyncio.get_running_loop().time()
        self._post(command)

    def _copy_in(self, effect: CopyIn) -> None:
        ring = self._rings.get(effect.connection)
        if ring is None:
            self._post(Copied(effect.job, error="this connection has no ring; hand one in with a Ring request first"))
            return
        self._workers.copies.start(
            None if all(map(is_whole, effect.ranges)) else effect.unit,
            partial(self._filler.fill, effect, ring.borrow()),
            lambda error: Copied(effect.job, error=reason(error)),
            ring.give_back,
        )

    def _convert(self, effect: ConvertSlots) -> None:
        self._workers.tensors.start(
            partial(self._tensors.run, effect), lambda error: Converted(effect.job, error=reason(error))
        )

    def _make_arena(self, effect: MakeArena) -> None:
        self._workers.arenas.start(
            partial(self._maker.make, effect), lambda error: ArenaFailed(effect.job, effect.arena, reason(error))
        )

    def _clear_arena(self, effect: ClearArena) -> None:
        self._workers.arenas.start(
            partial(self._maker.clear, effect), lambda error: ArenaFailed(effect.job, effect.arena, reason(error))
        )

    def _move(self, effect: MoveSlots) -> None:
        self._workers.hashes[effect.kind].start(
            partial(self._filler.move, effect), lambda error: Moved(effect.job, error=reason(error))
        )

    def _verify(self, effect: VerifySlots) -> None:
        hashing = Hashing(self._filler, effect, self._maker.arenas.kind_of)
        for number, kind in enumerate(hashing.kinds):
            self._workers.hashes[kind].start(partial(hashing.hash, number), partial(_unhashed, hashing, number))

    def _archive(self, effect: ArchiveSegments) -> None:
        # Nobody waits for it; what fails is done at the next start, since the event says that it is due
        self._workers.disk.start(partial(self._log.archive_through, Anchor(effect.seq, effect.chain)), lambda _: None)

    def _retire(self, effect: RetireSegments) -> None:
        # As above
        self._workers.disk.start(partial(self._log.retire_through, Anchor(effect.seq, effect.chain)), lambda _: None)


def _unhashed(hashing: Hashing, number: int, error: BaseException) -> Verified | None:
    del error
    return hashing.failed(number)
