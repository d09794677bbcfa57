"""Spare segments: files that already own their place on the device, so that a full disk is known ahead of need.

Two spares stand ready. Preallocating is the only step of the log that may meet ENOSPC, and meeting it there costs
nothing: the log still has the spares it has, and `count` tells the daemon to make room while it can. Only when the last
spare is used up and none can be made does the log stop.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kvledger_storage.log.io import LogIO, write_all
from kvledger_storage.log.segment import SegmentHeader, encode_segment_header, segment_name

if TYPE_CHECKING:
    from pathlib import Path

SPARES: Final = 2
_NAMES: Final = tuple(f"spare-{number}" for number in range(SPARES))
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Spares:
    """The spare segments of one log directory; used by whoever holds its lock."""

    def __init__(self, io: LogIO, directory: Path, segment_bytes: int) -> None:
        self._io = io
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._ready: list[str] = []
        self.is_full = False
        """Whether the disk had no room for a spare when one was last made."""

    @property
    def count(self) -> int:
        """Number of spares that stand ready; one fewer for a moment whenever a segment is begun."""
        return len(self._ready)

    def refill(self) -> None:
        """Make spares until there are `SPARES`, or until the disk is full, which is no error here.

        Raises:
            OSError: Anything but a full disk.
        """
        if len(self._ready) == SPARES:
            return
        made = full = False
        for name in _NAMES:
            if name in self._ready:
                continue
            try:
                self._allocate(name)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                # The other one may be there already, from an earlier run.
                full = True
            else:
                self._ready.append(name)
                made = True
        self.is_full = full
        if made:
            self._io.sync_directory(self._directory)

    def promote(self, header: SegmentHeader) -> Path:
        """Turn a spare into the segment that `header` describes, durably, and return its path.

        Raises:
            OSError: ENOSPC if no spare is left and none can be made; or any other failure of the file system.
        """
        self.refill()
        if not self._ready:
            raise OSError(errno.ENOSPC, "no spare segment is left and none can be allocated", str(self._directory))
        spare = self._directory / self._ready.pop(0)
        fd = self._io.open(spare)
        try:
            write_all(self._io, fd, encode_segment_header(header), 0)
            self._io.fdatasync(fd)
        finally:
            self._io.close(fd)
        path = self._directory / segment_name(header.first_seq)
        self._io.rename(spare, path)
        self._io.sync_directory(self._directory)
        return path

    def _preallocate(self, fd: int) -> None:
        """Allocate a whole segment, or give back the part that there was room for: others need it too."""
        try:
            self._io.preallocate(fd, self._segment_bytes)
        except OSError:
            with suppress(OSError):
                self._io.truncate(fd, 0)
            raise

    def _allocate(self, name: str) -> None:
        """Make one spare, or keep what an earlier run left, which holds at most the header of a promotion cut short."""
        fd = self._io.open(self._directory / name, create=True)
        try:
            if self._io.size(fd) != self._segment_bytes:
                self._io.truncate(fd, 0)
                self._preallocate(fd)
            self._io.fdatasync(fd)
        finally:
            self._io.close(fd)
