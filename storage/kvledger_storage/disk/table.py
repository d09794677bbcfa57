"""The table of segments: what lies in the directory, what of it is alive, where the next record goes.

Bookkeeping only; it makes no system call but those that look at the directory when it is opened. Numbers of segments
grow for ever: the newest file stays even when it is dead, so that a number found in an old log or report names one file
and no other, also after a restart.
"""

from collections.abc import Iterable

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.batch import Run
from kvledger_storage.disk.blob_io import BlobIO
from kvledger_storage.disk.errors import DirectoryError, NewerVersionError, RecordMissError
from kvledger_storage.disk.files import open_segment
from kvledger_storage.disk.pages import new_pages, transfer
from kvledger_storage.disk.segments import (
    HeaderState,
    Segment,
    SegmentInfo,
    judge_segment_header,
    segment_name,
    segment_number,
)

__all__ = ["SegmentTable"]


class SegmentTable:
    """All segments of one directory by number.

    Args:
        directory: Where the segment files lie.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._segments: dict[int, Segment] = {}
        self._newest = 0
        self._open: Segment | None = None

    def load(self, io: BlobIO, log_id: bytes) -> None:
        """Look at every segment file of the directory; all are closed afterwards.

        Raises:
            NewerVersionError: A segment is of a newer version.
            DirectoryError: The directory can not be listed.
        """
        try:
            names = io.listdir(self._directory)
        except OSError as error:
            raise DirectoryError(
                f"{self._directory} can not be listed ({error.strerror or error})",
                field="directory",
                remedy="make it a directory that the daemon may read",
            ) from error
        for number in sorted(number for name in names if (number := segment_number(name)) is not None):
            self._newest = number
            self._segments[number] = self._look_at(io, number, log_id)

    def _look_at(self, io: BlobIO, number: int, log_id: bytes) -> Segment:
        path = self.path(number)
        try:
            with open_segment(io, path, 0, direct=False) as file:
                page = new_pages(1)
                got = transfer(lambda parts, at: io.preadv(file.fd, parts, at), [page], 0)
        except (RecordMissError, OSError):
            return Segment(number, 0, HeaderState.UNUSABLE)
        state = judge_segment_header(page[:got], number, log_id)
        if state is HeaderState.NEWER:
            raise NewerVersionError(
                f"{path} was written by a newer version of kvledger",
                field="version",
                remedy="start that version, or give this one another directory",
            )
        return Segment(number, file.size, state)

    def path(self, number: int) -> str:
        """Return the path of segment `number`."""
        return f"{self._directory}/{segment_name(number)}"

    @property
    def file_bytes(self) -> int:
        """Bytes of all segment files, alive or dead."""
        return sum(segment.file_bytes for segment in list(self._segments.values()))

    @property
    def next_number(self) -> int:
        """Number of the next segment to be made."""
        return self._newest + 1

    @property
    def empty(self) -> bool:
        """Whether there is no segment at all."""
        return not self._segments

    def infos(self) -> list[SegmentInfo]:
        """Return what is known of each segment, oldest first."""
        return [
            SegmentInfo(s.number, self.path(s.number), s.file_bytes, s.live_bytes, s.closed, s.header)
            for s in list(self._segments.values())
        ]

    def tail(self) -> Run | None:
        """Return an empty run at the end of the open segment, or None if none is open."""
        return Run(self._open.number, self._open.file_bytes, self._open.file_bytes) if self._open else None

    def close_open(self) -> None:
        """Append nothing more to the open segment."""
        if self._open:
            self._open.closed = True
            self._open = None

    def stored(self, runs: Iterable[Run]) -> None:
        """Take in what has been written and synced: all its records are alive."""
        for run in runs:
            if not run.start:
                self.close_open()
                self._open = Segment(run.number, run.end, HeaderState.OURS, closed=False)
                self._segments[run.number] = self._open
                self._newest = run.number
            segment = self._segments[run.number]
            segment.file_bytes = run.end
            for ref, _ in run.records:
                segment.revive(ref)

    def left_behind(self, run: Run) -> None:
        """Take in that the file of `run` could not be cut back: it is closed and its surplus is dead."""
        self._newest = max(self._newest, run.number)
        segment = self._segments.setdefault(run.number, Segment(run.number, 0, HeaderState.OURS))
        segment.file_bytes = max(segment.file_bytes, run.end)

    def skip_number(self, number: int) -> None:
        """Never use `number`, since a file of somebody else has that name."""
        self._newest = max(self._newest, number)

    def adopt(self, refs: Iterable[BlobRef]) -> list[BlobRef]:
        """Count the records at `refs` as alive; return those for which there is no file, or not enough of it."""
        lost = []
        for ref in refs:
            segment = self._segments.get(ref.segment)
            if segment and segment.holds(ref):
                segment.revive(ref)
            else:
                lost.append(ref)
        return lost

    def newest_of_ours(self) -> Segment | None:
        """Return the newest segment, if records may be appended to it."""
        segment = self._segments.get(self._newest)
        return segment if segment and segment.header is HeaderState.OURS else None

    def reopen(self, segment: Segment) -> None:
        """Append to `segment` from where its last live record ends."""
        segment.file_bytes = segment.end_of_live
        segment.closed = False
        self._open = segment

    def drop(self, refs: Iterable[BlobRef]) -> int:
        """Count the records at `refs` as dead; return the bytes that became dead."""
        return sum(self._segments[ref.segment].drop(ref) for ref in refs if ref.segment in self._segments)

    def alive_from(self, number: int, offset: int) -> list[int]:
        """Return where the live records of a segment begin, from byte `offset` on; none if it is gone."""
        segment = self._segments.get(number)
        return segment.alive_from(offset) if segment else []

    def give_up(self, number: int) -> None:
        """Take in that what has the name of segment `number` is no file of ours any more; it is left alone."""
        self._segments[number].header = HeaderState.UNUSABLE
        self._segments[number].file_bytes = 0

    def dead(self) -> list[int]:
        """Return the numbers of segments whose files can be removed, oldest first."""
        return [number for number, segment in self._segments.items() if segment.dead and number != self._newest]

    def forget(self, number: int) -> None:
        """Take in that the file of segment `number` is gone."""
        del self._segments[number]
