"""What becomes of the log's past: archived when no start needs it, retired when it takes too much room.

A segment is archived when both snapshots that are kept lie behind it, so that a start still has a second one if the
newest is damaged. An archived segment is retired, oldest first, when the archive passes its cap, or when the disk is
full; before that a snapshot of the moment at which the rest begins is put into the archive, since audit replays from
there. It is retired step by step: however far the archive has grown, a step ends before the daemon is likely to be
killed again. Each step is an event before it is a change of files.

When the disk under the log is full, what can be given up goes first: the disk prefixes that were used least recently,
then the archive. Only when neither has anything left are commits refused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final

import structlog

from kvledger.wire.replies import Evicted, Reply
from kvledger_storage.log import Anchor, EventLog, LogError
from kvledger_storage.snapshot import KEPT
from kvledgerd.core.commands import ArchiveDue, Command, RetireDue, RoomWanted
from kvledgerd.loop.log_space import LogSpace
from kvledgerd.snapshots.kept import kept_seqs
from kvledgerd.snapshots.origin import keep_floor
from kvledgerd.snapshots.process import FloorProcess

__all__ = ["Retention"]

_STEP_BYTES: Final = 4 << 20
"""Bytes of log that are retired at once, but at least a segment: some 26,000 events, replayed in 2.7 s (EPYC)."""
_FULL: Final = "the disk is full"
_CAP: Final = "archive_bytes"

_log = structlog.get_logger(__name__)


class Retention:
    """Looks after the log's past; used on the loop, where nothing it does waits.

    Args:
        data: The data directory.
        log: The open log.
        archive_bytes: Most bytes of archived segments.
        room_bytes: Bytes on disk that are asked for at once when it is full.
        ask: Has a command decided and returns its reply once that is durable.
        space: Tells when the disk is full, and is told when nothing is left to give up.

    Attributes:
        archive_bytes: As above; may be changed.
    """

    def __init__(
        self,
        data: Path,
        log: EventLog,
        *,
        archive_bytes: int,
        room_bytes: int,
        ask: Callable[[Command], Awaitable[Reply | None]],
        space: LogSpace,
    ) -> None:
        self._data: Final = data
        self._open_log: Final = log
        self.archive_bytes = archive_bytes
        self._room_bytes: Final = room_bytes
        self._ask: Final = ask
        self._space: Final = space
        self._floors: Final = FloorProcess(data)
        self._due = True
        self._retired_seq = 0
        self._running: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Look again soon: there is a new snapshot."""
        self._due = True

    def look(self) -> None:
        """Do what is due, if anything; never waits."""
        idle = self._running is None or self._running.done()
        if idle and (self._due or self._space.is_short):
            self._due = False
            self._running = asyncio.get_running_loop().create_task(self._run(), name="retention")

    def stop(self) -> None:
        """End what runs in a process of its own."""
        self._floors.stop()

    async def _run(self) -> None:
        try:
            await self._archive()
            if self._space.is_short:
                await self._make_room()
            else:
                await self._keep_to_cap()
        except (OSError, LogError) as error:
            _log.warning("retention failed; it is tried again after the next snapshot", why=str(error))

    async def _archive(self) -> None:
        end = await asyncio.to_thread(self._archivable)
        if end is not None:
            await self._ask(ArchiveDue(end.seq, end.chain))
            _log.info("log archived", through_seq=end.seq - 1)
            # The files move behind that event, and only then is it known whether the archive keeps to its cap.
            self._due = True

    def _archivable(self) -> Anchor | None:
        """Return the last end of a segment that both kept snapshots lie behind, if the log begins before it."""
        seqs = kept_seqs(self._data)
        if len(seqs) < KEPT:
            return None
        return next((end for end in reversed(self._open_log.sealed_ends()) if end.seq - 1 <= seqs[-1]), None)

    async def _keep_to_cap(self) -> None:
        step = await asyncio.to_thread(self._step_to_cap)
        if step is not None:
            kept, overdue = step
            await asyncio.to_thread(partial(self._floors.make, kept.seq - 1, overdue=overdue))
            await self._retire(kept, _CAP)
            self._due = True

    def _step_to_cap(self) -> tuple[Anchor, bool] | None:
        """Return where the archive has to begin to be a step nearer to its cap, and whether that is overdue.

        None if the archive keeps to its cap. An archive of twice its cap is overdue: what should have kept it smaller
        stood back for other work too long.
        """
        # What was retired may not be removed yet
        starts = [one for one in self._open_log.archived_starts() if one[0].seq >= self._retired_seq]
        excess = sum(size for _, size in starts) - self.archive_bytes
        if excess <= 0:
            return None
        step, overdue = min(excess, _STEP_BYTES), excess > self.archive_bytes
        after = [*(start for start, _ in starts[1:]), self._open_log.begins.live]
        freed = accumulate(size for _, size in starts)
        return next(kept for kept, size in zip(after, freed, strict=True) if size >= step), overdue

    async def _make_room(self) -> None:
        """Give up the oldest of what is kept on disk, of one sort and then of the other."""
        reply = await self._ask(RoomWanted(self._room_bytes, _FULL))
        if isinstance(reply, Evicted) and reply.dropped:
            _log.warning("disk is full, records were given up", records=reply.dropped)
            return
        kept = await asyncio.to_thread(self._all_archived)
        if kept is not None:
            await self._retire(kept, _FULL)
        self._space.exhausted = kept is None

    def _all_archived(self) -> Anchor | None:
        """Return where the log goes on behind everything archived, once a snapshot that needs no room is kept there."""
        live = self._open_log.begins.live
        starts = self._open_log.archived_starts()
        return live if starts and keep_floor(self._data, live.seq - 1) else None

    async def _retire(self, kept: Anchor, reason: str) -> None:
        await self._ask(RetireDue(kept.seq, kept.chain, reason))
        self._retired_seq = kept.seq
        _log.warning("archive retired", through_seq=kept.seq - 1, why=reason)
