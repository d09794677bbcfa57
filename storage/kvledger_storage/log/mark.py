"""The mark: the last seq whose sync has returned, kept beside the log.

It exists for one question that recovery could not answer otherwise. When the last frames are unreadable, were they
synced (then the disk has rotted, and starting would forget what was acknowledged) or not (then a crash tore them, and
nobody was told of them)? Frames say so about their predecessors in `synced_through`, but nothing stands behind the last
one, and the mark stands in for it. It also shows that whole frames or a whole segment vanished from the end.

It is written after a sync has returned, so it never says too much; it is not synced itself, so after a power cut it
may say too little, which only weakens the evidence for the last batch. After SIGKILL it is exact, since the page cache
survives. Two slots in different pages are written in turn, so that a torn write costs at most the newer of the two.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from kvledger_storage.log.io import LogIO, read_file, write_all

if TYPE_CHECKING:
    from pathlib import Path

MARK_NAME: Final = "mark"
_MAGIC: Final = b"KVLMARK1"
_SLOT: Final = struct.Struct("<8sQI")
_CRC: Final = struct.Struct("<I")
_SLOTS: Final = 2
SLOT_STRIDE: Final = 4096
_BYTES: Final = (_SLOTS - 1) * SLOT_STRIDE + _SLOT.size

assert _SLOT.size <= 512, "a slot lies within one sector"
assert SLOT_STRIDE % 4096 == 0, "two slots never share a sector or a page"


def read_mark(io: LogIO, directory: Path, log_id: bytes) -> int:
    """Return the greatest seq that a whole slot of this log's mark names; 0 if there is none."""
    return max(_read_slots(io, directory, log_id))


def _read_slots(io: LogIO, directory: Path, log_id: bytes) -> list[int]:
    try:
        data = read_file(io, directory / MARK_NAME)
    except FileNotFoundError:
        data = b""
    return [_decode(data[slot * SLOT_STRIDE :][: _SLOT.size], log_id) for slot in range(_SLOTS)]


def _decode(raw: bytes, log_id: bytes) -> int:
    if len(raw) < _SLOT.size:
        return 0
    magic, seq, crc = _SLOT.unpack(raw)
    whole = magic == _MAGIC and crc32c(raw[: -_CRC.size], crc32c(log_id)) == crc
    return int(seq) if whole else 0


class Mark:
    """The mark of one open log; written by the log writer alone."""

    def __init__(self, io: LogIO, directory: Path, log_id: bytes) -> None:
        slots = _read_slots(io, directory, log_id)
        self._io = io
        self._log_id = log_id
        self._slot = slots.index(min(slots))
        self._fd = io.open(directory / MARK_NAME, create=True)
        if io.size(self._fd) < _BYTES:
            # Both slots get their place now, so that a full disk can not keep a sync from being noted.
            io.preallocate(self._fd, _BYTES)

    def write(self, seq: int) -> None:
        """Note that everything up to `seq` is synced; costs one small write into the page cache."""
        unsigned = _SLOT.pack(_MAGIC, seq, 0)[: -_CRC.size]
        data = unsigned + _CRC.pack(crc32c(unsigned, crc32c(self._log_id)))
        write_all(self._io, self._fd, data, self._slot * SLOT_STRIDE)
        self._slot = (self._slot + 1) % _SLOTS

    def close(self) -> None:
        """Give the descriptor back."""
        self._io.close(self._fd)
