"""The archive: segments that no start needs any more, kept for audit until retention gives them up.

Archiving moves a sealed segment into `archive/`, beside the log it belongs to; nothing is rewritten. Retiring removes
the oldest archived ones. Both publish the new beginning first and move files after it, so whatever is interrupted is
finished by `settle`, which does what the beginning says; and both are asked for only when the event that says so is
durable.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kvledger_storage.log.beginning import Anchor, Beginning, read_beginning, write_beginning
from kvledger_storage.log.io import LogIO, move_files, read_all, read_file
from kvledger_storage.log.segment import SEGMENT_HEADER_BYTES, decode_segment_header, first_seq_of, segment_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvledger_storage.log.identity import Identity

ARCHIVE_NAME: Final = "archive"


def all_segments(io: LogIO, directory: Path) -> list[str]:
    """Return the names of all segments, archived ones included, in log order."""
    return segment_names(sorted({*io.names(directory / ARCHIVE_NAME), *io.names(directory)}))


def read_segment(io: LogIO, directory: Path, name: str) -> tuple[Path, bytes]:
    """Return where a segment lies, and its content; it may be moved to the archive while it is looked for.

    Raises:
        FileNotFoundError: It is in neither place.
    """
    for path in (directory / name, directory / ARCHIVE_NAME / name):
        with suppress(FileNotFoundError):
            return path, read_file(io, path)
    raise FileNotFoundError(errno.ENOENT, "neither in the log nor in its archive", str(directory / name))


def sealed_ends(io: LogIO, directory: Path) -> Iterator[Anchor]:
    """Yield the places behind each live segment but the last, oldest first; each may be archived through."""
    for name in segment_names(io.names(directory))[1:]:
        yield _start_of(io, directory / name)


def archived_starts(io: LogIO, directory: Path) -> Iterator[tuple[Anchor, int]]:
    """Yield where each archived segment begins and its bytes, oldest first."""
    for name in segment_names(io.names(directory / ARCHIVE_NAME)):
        path = directory / ARCHIVE_NAME / name
        fd = io.open(path, read_only=True)
        try:
            size = io.size(fd)
        finally:
            io.close(fd)
        yield _start_of(io, path), size


def archive_through(io: LogIO, directory: Path, identity: Identity, live: Anchor) -> None:
    """Let the log begin at `live`, and move what lies before it to the archive; nothing if it begins there already."""
    begins = read_beginning(io, directory, identity)
    if live.seq > begins.live.seq:
        write_beginning(io, directory, identity, Beginning(begins.kept, live))
    settle(io, directory, identity)


def retire_through(io: LogIO, directory: Path, identity: Identity, kept: Anchor) -> None:
    """Let the archive begin at `kept`, at most where the log does, and remove what lies before it."""
    begins = read_beginning(io, directory, identity)
    if begins.kept.seq < kept.seq <= begins.live.seq:
        write_beginning(io, directory, identity, Beginning(kept, begins.live))
    settle(io, directory, identity)


def settle(io: LogIO, directory: Path, identity: Identity) -> None:
    """Finish what an archiving or retiring that was cut short has left."""
    begins, archive = read_beginning(io, directory, identity), directory / ARCHIVE_NAME
    moving = [name for name in segment_names(io.names(directory)) if first_seq_of(name) < begins.live.seq]
    move_files(io, moving, directory, archive)
    retired = [name for name in segment_names(io.names(archive)) if first_seq_of(name) < begins.kept.seq]
    for name in retired:
        io.unlink(archive / name)
    if retired:
        io.sync_directory(archive)


def _start_of(io: LogIO, path: Path) -> Anchor:
    fd = io.open(path, read_only=True)
    try:
        header = decode_segment_header(read_all(io, fd, SEGMENT_HEADER_BYTES))
    finally:
        io.close(fd)
    return Anchor(header.first_seq, header.previous_chain)
