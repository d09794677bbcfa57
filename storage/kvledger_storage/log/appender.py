"""Appending encoded frames to the current segment, and syncing them, in the one order that recovery relies on.

Sync the old segment, then name the new one, then write to it. Sync, then set the mark, then tell anybody.
No operation is tried a second time after it failed: the object is of no use afterwards, and a restart decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvledger_storage.log.frame import chain_of
from kvledger_storage.log.io import LogIO, write_all
from kvledger_storage.log.mark import Mark
from kvledger_storage.log.segment import FORMAT_VERSION, SEGMENT_HEADER_BYTES, SegmentHeader
from kvledger_storage.log.spares import SPARES, Spares

if TYPE_CHECKING:
    from pathlib import Path

    from kvledger_storage.log.inspection import Inspection

_AHEAD_BYTES: Final = 16 << 10


class Appender:
    """The end of a recovered log.

    Attributes:
        last_seq: Last seq in the page cache.
        synced_seq: Last seq whose sync returned.
        syncs: Syncs that returned.

    Args:
        io: The operating system.
        directory: The log's directory, whose lock is held.
        end: A clean inspection of the log: where it ends.
        segment_bytes: Length of the segments that are made from now on.
    """

    def __init__(self, io: LogIO, directory: Path, end: Inspection, segment_bytes: int) -> None:
        assert end.last_scan is not None, "a clean log has a segment"
        self._io = io
        self._log_id = end.identity.log_id
        self._segment_bytes = segment_bytes
        self._current_bytes = end.last_scan.header.size
        self._offset = end.last_scan.offset
        self._fd = io.open(directory / end.segments[-1])
        self._mark = Mark(io, directory, self._log_id)
        self._spares = Spares(io, directory, segment_bytes)
        self._spares.refill()
        self._frame = b""
        self._link = (self._frame, end.chain)
        self.last_seq = end.last_seq
        self.synced_seq = end.last_seq
        self.syncs = 0

    def link(self) -> bytes:
        """Return what the next frame names as its previous one, 32 bytes; callable from any thread.

        Each answer is kept with the frame that it belongs to, so that one which the next `append` overtook is not taken
        for the answer about that.
        """
        linked, chain = self._link
        frame = self._frame
        if frame is not linked:
            chain = chain_of(frame)
            self._link = (frame, chain)
        return chain

    def link_ahead(self) -> None:
        """Do what `link` will need, if it is no more than some 20 us of work; for who has time while a sync runs."""
        if len(self._frame) <= _AHEAD_BYTES:
            self.link()

    @property
    def spares(self) -> int:
        """Spare segments that stand ready."""
        return self._spares.count

    @property
    def is_full(self) -> bool:
        """Whether the disk had no room for a spare when one was last made."""
        return self._spares.is_full

    @property
    def lacks_spares(self) -> bool:
        """Whether a spare segment is missing."""
        return self._spares.count < SPARES

    def has_room(self, frame: bytes) -> bool:
        """Tell whether a frame still fits the current segment."""
        return self._offset + len(frame) <= self._current_bytes

    def append(self, frame: bytes, last_seq: int) -> None:
        """Write one encoded frame, in a new segment if this one has no room for it.

        Args:
            frame: The frame, which names `chain` as its previous one.
            last_seq: Its last seq.
        """
        if not self.has_room(frame):
            self._rotate()
        write_all(self._io, self._fd, frame, self._offset)
        self._offset += len(frame)
        self._frame = frame
        self.last_seq = last_seq

    def sync(self) -> None:
        """Make everything appended durable, then say so in the mark."""
        if self.synced_seq == self.last_seq:
            return
        self._io.fdatasync(self._fd)
        self._mark.write(self.last_seq)
        self.synced_seq = self.last_seq
        self.syncs += 1

    def refill(self) -> None:
        """Bring the spares up to their number; asked after a batch has been reported, when nobody waits for it."""
        self._spares.refill()

    def close(self) -> None:
        """Give the descriptors back; nothing is synced here."""
        self._io.close(self._fd)
        self._mark.close()

    def _rotate(self) -> None:
        self.sync()
        header = SegmentHeader(
            format_version=FORMAT_VERSION,
            size=self._segment_bytes,
            log_id=self._log_id,
            first_seq=self.last_seq + 1,
            previous_chain=self.link(),
        )
        path = self._spares.promote(header)
        old, self._fd = self._fd, self._io.open(path)
        self._io.close(old)
        self._offset, self._current_bytes = SEGMENT_HEADER_BYTES, self._segment_bytes
