"""How a log begins: empty, or in the place of one that had to be set aside.

A log exists from the moment its id file is published, which comes last. Setting a damaged log aside keeps that order
and can be cut short anywhere: the successor's identity is written down before the first file is moved, the oldest
segment moves first (so that what is left stays unreadable as a log and cannot be mistaken for one), and the new id is
published last. The next start finds the same damage, and goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from kvledger_storage.log.archive import ARCHIVE_NAME
from kvledger_storage.log.beginning import BEGIN_NAME
from kvledger_storage.log.errors import FrameError, LogVersionError, Problem
from kvledger_storage.log.frame import LOG_ID_BYTES
from kvledger_storage.log.identity import (
    ID_NAME,
    Identity,
    Predecessor,
    decode_identity,
    encode_identity,
    new_identity,
)
from kvledger_storage.log.io import LogIO, move_files, publish_file, read_file
from kvledger_storage.log.mark import MARK_NAME, read_mark
from kvledger_storage.log.segment import (
    FORMAT_VERSION,
    SegmentHeader,
    decode_segment_header,
    headers_from,
    segment_names,
)
from kvledger_storage.log.spares import Spares

if TYPE_CHECKING:
    from pathlib import Path

_SUCCESSOR: Final = "successor"


class Quarantine(msgspec.Struct, frozen=True, kw_only=True):
    """A log that was set aside: the `folder` it lies in, its `problem`, and how the new log names it."""

    folder: str
    problem: Problem
    predecessor: Predecessor


def create_log(io: LogIO, directory: Path, identity: Identity, segment_bytes: int) -> None:
    """Make the first segment of an empty log, then publish its id."""
    header = SegmentHeader(
        format_version=FORMAT_VERSION,
        size=segment_bytes,
        log_id=identity.log_id,
        first_seq=identity.first_seq,
        previous_chain=identity.root_chain,
    )
    Spares(io, directory, segment_bytes).promote(header)
    publish_file(io, directory / ID_NAME, encode_identity(identity))


def quarantine_log(
    io: LogIO, directory: Path, problem: Problem, predecessor: Predecessor, segment_bytes: int
) -> Quarantine:
    """Set the damaged log aside in a folder of its own and begin a new one that names its chain.

    The folder is a log directory in itself, so `verify` and reading work on it as before.

    Args:
        io: The operating system.
        directory: The log's directory, whose lock is held.
        problem: Why the log was refused.
        predecessor: What is known of the old log; if a quarantine was cut short, what was known then is kept.
        segment_bytes: Length of the new log's segments.
    """
    folder = _folder(io, directory, predecessor.log_id)
    successor = _successor(io, directory, folder, predecessor)
    _move(io, directory, folder, successor.log_id)
    create_log(io, directory, successor, segment_bytes)
    io.unlink(folder / _SUCCESSOR)
    io.sync_directory(folder)
    assert successor.predecessor is not None
    return Quarantine(folder=str(folder), problem=problem, predecessor=successor.predecessor)


def log_id_of(io: LogIO, directory: Path) -> bytes:
    """Return the log's id, from a segment if the id file is gone or damaged, zeros if nothing tells it."""
    try:
        return decode_identity(read_file(io, directory / ID_NAME)).log_id
    except (FrameError, FileNotFoundError):
        headers = (_header_of(io, directory / name) for name in segment_names(io.names(directory)))
        return next((header.log_id for header in headers if header is not None), bytes(LOG_ID_BYTES))


def _folder(io: LogIO, directory: Path, old_id: bytes) -> Path:
    """Return the folder of a quarantine that was cut short, or else one that does not exist yet."""
    number, folder = 1, directory / f"quarantine-{old_id.hex()}"
    while (inside := io.names(folder)) and _SUCCESSOR not in inside:
        number += 1
        folder = directory / f"quarantine-{old_id.hex()}-{number}"
    return folder


def _successor(io: LogIO, directory: Path, folder: Path, predecessor: Predecessor) -> Identity:
    """Return the identity that a quarantine cut short had chosen, or choose one and write it down."""
    if _SUCCESSOR in io.names(folder):
        return decode_identity(read_file(io, folder / _SUCCESSOR))
    highest = max(predecessor.last_seq, read_mark(io, directory, predecessor.log_id), _highest_seq(io, directory))
    successor = new_identity(first_seq=highest + 1, predecessor=predecessor)
    io.make_directory(folder)
    if ID_NAME in io.names(directory):
        publish_file(io, folder / ID_NAME, read_file(io, directory / ID_NAME))
    publish_file(io, folder / _SUCCESSOR, encode_identity(successor))
    return successor


def _move(io: LogIO, directory: Path, folder: Path, successor_id: bytes) -> None:
    """Move archive and segments, oldest first, then the mark; drop what an earlier attempt had made of the new log.

    Without the file that says where the log begins, or without its first segments, what is left is as unreadable as
    before.
    """
    move_files(io, io.names(directory / ARCHIVE_NAME), directory / ARCHIVE_NAME, folder / ARCHIVE_NAME)
    move_files(io, [name for name in io.names(directory) if name == BEGIN_NAME], directory, folder)
    for name in segment_names(io.names(directory)):
        header = _header_of(io, directory / name)
        if header is not None and header.log_id == successor_id:
            io.unlink(directory / name)
        else:
            move_files(io, [name], directory, folder)
    move_files(io, [name for name in io.names(directory) if name == MARK_NAME], directory, folder)


def _header_of(io: LogIO, path: Path) -> SegmentHeader | None:
    try:
        return decode_segment_header(read_file(io, path))
    except (FrameError, LogVersionError):
        return None


def _highest_seq(io: LogIO, directory: Path) -> int:
    """Return the highest seq that any readable header in the damaged log names, so that none is given away twice."""
    highest = 0
    for name in segment_names(io.names(directory)):
        header = _header_of(io, directory / name)
        if header is not None:
            frames = headers_from(read_file(io, directory / name), 0, header.log_id)
            seen = (frame.last_seq for frame in frames)
            highest = max(highest, header.first_seq - 1, *seen)
    return highest
