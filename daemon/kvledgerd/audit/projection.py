"""The follower: reads the log from the watermark on and writes what it tells, batch by batch.

Rows and watermark are one transaction, so a kill at any instruction costs the batch that was under way, and the next
run tells it again. The state that telling needs is made anew at each start, from the newest snapshot before the
watermark, or from the log. The daemon knows nothing of it and waits for nothing.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import Connection

from kvledger.errors import NotFoundError, ServiceError
from kvledger_storage.audit_sql.rows import GapRow, SourceRow, WatermarkRow
from kvledger_storage.audit_sql.statements import (
    insert_rows,
    newest_mark,
    source_of,
    states_now,
    take_back,
    watermarks,
)
from kvledger_storage.events import decode
from kvledger_storage.log import LogRotError, Problem, RealLogIO, damage_at_end, read_events
from kvledger_storage.log.inspection import load_identity
from kvledger_storage.log.reader import events_in, read_frames
from kvledger_storage.snapshot import SnapshotError, read_snapshots
from kvledgerd.audit.replay import log_directory
from kvledgerd.audit.telling.sheet import Sheet
from kvledgerd.audit.telling.standing import standing_rows
from kvledgerd.audit.telling.teller import Teller
from kvledgerd.core.config import CAPLESS
from kvledgerd.core.state import State
from kvledgerd.replaying import apply_logged
from kvledgerd.snapshots.choice import SNAPSHOT_DIRECTORY
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.origin import Origin, origin

__all__ = ["BATCH_EVENTS", "Projection", "Transactions"]

BATCH_EVENTS: Final = 2_000
"""Events of one transaction at least, if there are so many."""
Transactions = Callable[[], AbstractContextManager[Connection]]
"""Gives a connection in a transaction of its own, or in one that lasts longer."""


class Projection:
    """A log on its way into a database whose tables are there.

    Args:
        data: The data directory.
        transactions: Where to read the watermark and write rows.
        batch: Events of one transaction at least.

    Attributes:
        seq: Last event that is in the database.
        taken_back: Events whose rows were removed, since the log has lost them.
        problem: Where the log is damaged or contradicts itself, None as long as neither was met.

    Raises:
        NotFoundError: There is no log.
        ServiceError: The database tells about another log.
        LogError: The log can not be read where it begins, or is of a newer version.
    """

    def __init__(self, data: Path, transactions: Transactions, *, batch: int = BATCH_EVENTS) -> None:
        self._io, self._data, self._directory = RealLogIO(), data, log_directory(data)
        self._transactions, self._batch = transactions, batch
        identity = load_identity(self._io, self._directory)
        if identity is None:
            remedy = "name the data directory of a daemon, the one that holds the folder log"
            raise NotFoundError(f"there is no log in {data}", field="data", remedy=remedy)
        self._identity = identity
        self.taken_back = 0
        self.problem: Problem | None = None
        with transactions() as connection:
            self._check_source(connection)
            mark = self._agreed(connection)
            state = None if mark is None else self._state_at(mark)
            if mark is not None and state is not None:
                self.seq, self.chain = mark.seq, mark.chain
            else:
                state = self._begin(connection, mark)
        self._teller = Teller(self._directory, state)

    def _check_source(self, connection: Connection) -> None:
        mine, found = self._identity.log_id.hex(), source_of(connection)
        if found not in {"", mine}:
            remedy = "name another database, or make it anew with `kvledger audit project --rebuild`"
            raise ServiceError(f"the database tells about log {found}, this is log {mine}", field="db", remedy=remedy)

    def _agreed(self, connection: Connection) -> WatermarkRow | None:
        """Return the newest watermark that the log agrees with; what was told behind it is taken back."""
        newest = newest_mark(connection)
        agreed = next((mark for mark in watermarks(connection) if self._agrees(mark)), None)
        if newest is not None and newest != agreed:
            kept = agreed.seq if agreed is not None else -1
            self.taken_back = newest.seq - max(kept, 0)
            take_back(connection, kept)
        return agreed

    def _agrees(self, mark: WatermarkRow) -> bool:
        """Tell whether the log holds the frame that a watermark stands behind; of one that was retired all is well."""
        for _, frame in read_frames(self._io, self._directory, from_seq=max(mark.seq, 1)):
            if frame.header.last_seq == mark.seq:
                return frame.chain.hex() == mark.chain
            if frame.header.first_seq <= mark.seq + 1:
                return frame.header.previous_chain.hex() == mark.chain and frame.header.first_seq == mark.seq + 1
            return True
        return mark.seq == self._identity.first_seq - 1

    def _state_at(self, mark: WatermarkRow) -> State | None:
        """Return the state at a watermark, None if events behind it were retired."""
        begun = origin(self._io, self._data)
        if begun.seq > mark.seq:
            return None
        snapshot = self._snapshot(mark.seq)
        state, seq = (begun.state, begun.seq) if snapshot is None or snapshot[1] < begun.seq else snapshot
        if seq < mark.seq:
            for logged in read_events(self._io, self._directory, from_seq=seq + 1, through_seq=mark.seq):
                apply_logged(self._directory, state, logged)
        return state

    def _snapshot(self, most: int) -> tuple[State, int] | None:
        """Return the newest whole snapshot that holds no event behind `most`."""
        for found in read_snapshots(self._io, self._data / SNAPSHOT_DIRECTORY, self._identity.log_id):
            if (
                not isinstance(found, SnapshotError)
                and found.seq <= most
                and self._agrees(WatermarkRow(found.seq, found.chain.hex(), 0))
            ):
                with suppress(msgspec.MsgspecError, KeyError, ValueError):
                    state = decode_state(found.body, CAPLESS)
                    if state.digest() == found.digest:
                        return state, found.seq
        return None

    def _begin(self, connection: Connection, mark: WatermarkRow | None) -> State:
        """Begin with what the log begins with, and tell what stood then; between the two, if any, is a gap."""
        begun = origin(self._io, self._data)
        first = self._identity.first_seq if mark is None else mark.seq + 1
        sheet = Sheet()
        if mark is None:
            sheet.add(SourceRow(self._identity.log_id.hex(), begun.seq))
        if begun.seq >= first:
            sheet.add(GapRow(begun.seq, first))
            sheet.extend(standing_rows(begun.state, begun.seq, states_now(connection)))
        self._write(connection, sheet, begun, 0)
        return begun.state

    def _write(self, connection: Connection, sheet: Sheet, at: Origin | WatermarkRow, time_ms: int) -> None:
        chain = at.chain if isinstance(at.chain, str) else at.chain.hex()
        sheet.add(WatermarkRow(at.seq, chain, time_ms))
        insert_rows(connection, sheet.rows)
        self.seq, self.chain = at.seq, chain

    def to_end(self, progress: Callable[[int], object] = lambda _: None) -> int:
        """Tell everything that can be read now; returns how many events that were.

        Damage ends it behind the last whole frame, and `problem` says so.

        Args:
            progress: Called with the seq that was reached after each transaction.

        Raises:
            LogVersionError: A part of the log was written by a newer kvledger.
            EventError: An event is of a newer form.
        """
        began = self.seq
        mark = WatermarkRow(self.seq, self.chain, 0)
        try:
            for path, frame in read_frames(self._io, self._directory, from_seq=self.seq + 1):
                if frame.header.previous_chain.hex() != mark.chain:
                    raise ServiceError(
                        f"the log was replaced behind seq {mark.seq}", field="data", remedy="run the command again"
                    )
                time_ms = self._tell(frame.header.first_seq, events_in(path, frame))
                mark = WatermarkRow(frame.header.last_seq, frame.chain.hex(), time_ms)
                if mark.seq - self.seq >= self._batch:
                    self._flush(mark)
                    progress(self.seq)
        except LogRotError as error:
            self.problem = error.problem
        if mark.seq > self.seq:
            self._flush(mark)
            progress(self.seq)
        return self.seq - began

    def _tell(self, seq: int, events: list[bytes]) -> int:
        time_ms = 0
        for number, raw in enumerate(events, seq):
            logged = decode(raw)
            self._teller.tell(number, logged)
            time_ms = logged.time_ms
        return time_ms

    def _flush(self, mark: WatermarkRow) -> None:
        with self._transactions() as connection:
            self._write(connection, self._teller.take().through(mark.seq), mark, mark.time_ms)

    def look_for_damage(self) -> Problem | None:
        """Return the damage at which reading ended in silence; None if the log ends there or a frame is on its way."""
        self.problem = self.problem or damage_at_end(self._directory, io=self._io)
        return self.problem
