"""Snapshot files: the state after one frame of the log, so that a start need not replay all that came before.

A snapshot proves which log and which moment it belongs to: it names the log's id, the seq, and the chain that the next
frame has to name. It is published whole or not at all, carries a BLAKE2b of its body, and is only ever a short cut: one
that is damaged, of another log or ahead of it is passed over, and the log alone tells the same. What the body means is
not known here.
"""

from __future__ import annotations

import re
import struct
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec
from crc32c import crc32c

from kvledger_storage.log.frame import CHAIN_BYTES, LOG_ID_BYTES
from kvledger_storage.log.io import LogIO, publish_file, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SNAPSHOT_VERSION: Final = 1
KEPT: Final = 2
"""Snapshots that are kept: the newest, and one more should it turn out to be damaged."""

_DRAFT: Final = ".draft"
_MAGIC: Final = b"KVLSNAP1"
_SUM_BYTES: Final = 32
# magic, version, log id, seq, chain, digest of the state, bytes of the body, BLAKE2b of the body, CRC32C of all before
_HEADER: Final = struct.Struct(f"<8sI{LOG_ID_BYTES}sQ{CHAIN_BYTES}sQQ{_SUM_BYTES}sI")
_CRC: Final = struct.Struct("<I")
_NAME: Final = re.compile(r"(\d{20})\.snapshot")


class SnapshotError(Exception):
    """A file that is no whole snapshot of this version; the message names the file and what is wrong with it."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state after one frame.

    Attributes:
        log_id: The log, 16 bytes.
        seq: Last event that it holds.
        chain: What the frame behind it names as its previous one, 32 bytes.
        digest: Digest of the state, 64 bits.
        body: The state.
    """

    log_id: bytes
    seq: int
    chain: bytes
    digest: int
    body: bytes


def write_snapshot(io: LogIO, directory: Path, snapshot: Snapshot) -> Path:
    """Publish a snapshot durably, then remove all but the `KEPT` newest; returns its path.

    To be called by the holder of `snapshot_lock`, since what a writer that was killed left behind is removed first.
    """
    io.make_directory(directory)
    _remove(io, directory, [name for name in io.names(directory) if name.endswith(_DRAFT)])
    body = snapshot.body
    fields = (SNAPSHOT_VERSION, snapshot.log_id, snapshot.seq, snapshot.chain, snapshot.digest, len(body), _sum(body))
    unsigned = _HEADER.pack(_MAGIC, *fields, 0)[: -_CRC.size]
    path = directory / snapshot_name(snapshot.seq)
    try:
        publish_file(io, path, unsigned + _CRC.pack(crc32c(unsigned)) + body)
    except OSError:
        # Perhaps the disk is full, and then half a snapshot is the last thing that it needs.
        with suppress(OSError):
            _remove(io, directory, [path.name + _DRAFT])
        raise
    _remove(io, directory, snapshot_names(io, directory)[KEPT:])
    return path


@contextmanager
def snapshot_lock(io: LogIO, directory: Path) -> Iterator[bool]:
    """Try to be the only one who makes snapshots in a directory, for a `with` block; gives whether that succeeded."""
    io.make_directory(directory)
    fd = io.open(directory / "lock", create=True)
    try:
        yield io.lock(fd)
    finally:
        io.close(fd)


def _remove(io: LogIO, directory: Path, names: list[str]) -> None:
    for name in names:
        io.unlink(directory / name)


def snapshot_name(seq: int) -> str:
    """Return the file name of the snapshot after event `seq`."""
    return f"{seq:020d}.snapshot"


def snapshot_names(io: LogIO, directory: Path) -> list[str]:
    """Return the names of all snapshots, newest first."""
    return sorted(filter(_NAME.fullmatch, io.names(directory)), reverse=True)


def read_snapshots(io: LogIO, directory: Path, log_id: bytes) -> Iterator[Snapshot | SnapshotError]:
    """Yield the snapshots of one log, newest first; in the place of one that can not be used, why."""
    for name in snapshot_names(io, directory):
        try:
            snapshot = _decode(read_file(io, directory / name))
        except (SnapshotError, OSError) as error:
            yield SnapshotError(f"{directory / name}: {error}")
            continue
        if snapshot.log_id == log_id:
            yield snapshot
        else:
            yield SnapshotError(f"{directory / name}: it belongs to log {snapshot.log_id.hex()}")


def _decode(data: bytes) -> Snapshot:
    if len(data) < _HEADER.size or data[: len(_MAGIC)] != _MAGIC:
        raise SnapshotError("it has no whole header")
    _, version, log_id, seq, chain, digest, length, total, crc = _HEADER.unpack_from(data)
    if crc32c(data[: _HEADER.size - _CRC.size]) != crc:
        raise SnapshotError("its header fails its CRC32C")
    if version != SNAPSHOT_VERSION:
        raise SnapshotError(f"it has version {version}, this kvledger reads {SNAPSHOT_VERSION}")
    body = data[_HEADER.size :]
    if len(body) != length or _sum(body) != total:
        raise SnapshotError("its body is not the one that was written")
    return Snapshot(log_id=log_id, seq=seq, chain=chain, digest=digest, body=body)


def _sum(body: bytes) -> bytes:
    return blake2b(body, digest_size=_SUM_BYTES).digest()
