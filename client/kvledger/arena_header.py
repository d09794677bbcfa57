"""The first page of an arena: what the memory is, checked before a byte of it is believed.

Both sides read it: a client before it hands out a view, the daemon when a descriptor store gives an arena back after a
restart. It is no protection against a process that may write to the arena (that is the trust domain, the tenant), but
it tells a foreign, older or damaged region from a right one.

Layout of the file, all numbers little-endian: one header page; the generation table, one u64 for each 4 KiB of data,
padded to whole pages; the data, page aligned. The offsets of table and data stand in the header, so that a later
version can move them without changing how the file is read.
"""

import struct
import sys
import zlib
from dataclasses import dataclass
from typing import Final, Self

from kvledger.errors import ServiceError
from kvledger.memfd import PAGE_BYTES

__all__ = ["DIGEST_BYTES", "ID_BYTES", "ArenaHeader", "ArenaHeaderError", "ArenaIdentity"]

ID_BYTES: Final = 16
DIGEST_BYTES: Final = 32

_MAGIC: Final = b"kvlarena"
_VERSION: Final = 1
# magic, version, kind, arena id, log id, boot id, tenant digest, data bytes, table offset, data offset
_FIELDS: Final = struct.Struct("<8sHB5xQ16s16s32sQQQ")
_CRC: Final = struct.Struct("<I")
_GENERATION_BYTES: Final = 8


class ArenaHeaderError(ServiceError):
    """A region that should be an arena is none, or one of another format."""


@dataclass(frozen=True, slots=True)
class ArenaIdentity:
    """Whose memory an arena is.

    Attributes:
        log_id: Random id of the log that knows this arena, 16 bytes.
        boot_id: The machine's boot id, 16 bytes; memory of another boot can not be this memory.
        arena_id: Never reused within one log.
        tenant: Digest of the tenant, 32 bytes.
        kind: Number of the one kind of the objects in it.
    """

    log_id: bytes
    boot_id: bytes
    arena_id: int
    tenant: bytes
    kind: int

    def __post_init__(self) -> None:
        if len(self.log_id) != ID_BYTES or len(self.boot_id) != ID_BYTES or len(self.tenant) != DIGEST_BYTES:
            raise ValueError("log_id and boot_id are 16 bytes, tenant is 32")


@dataclass(frozen=True, slots=True)
class ArenaHeader:
    """Identity and geometry of one arena.

    Attributes:
        identity: Whose memory it is.
        data_bytes: Size of the data area, a multiple of 4,096.
        table_offset: Bytes from the start of the file to the generation table.
        data_offset: Bytes from the start of the file to the data area.
    """

    identity: ArenaIdentity
    data_bytes: int
    table_offset: int
    data_offset: int

    @classmethod
    def plan(cls, identity: ArenaIdentity, data_bytes: int) -> Self:
        """Return the header of a new arena, with its offsets worked out.

        Raises:
            ValueError: ``data_bytes`` is no positive multiple of 4,096: a fault of the program, so not a typed error.
        """
        if data_bytes <= 0 or data_bytes % PAGE_BYTES:
            raise ValueError(f"data_bytes must be a positive multiple of {PAGE_BYTES}, not {data_bytes}")
        table_bytes = data_bytes // PAGE_BYTES * _GENERATION_BYTES
        data_offset = PAGE_BYTES + -(-table_bytes // PAGE_BYTES) * PAGE_BYTES
        return cls(identity, data_bytes, PAGE_BYTES, data_offset)

    @property
    def pages(self) -> int:
        """Number of 4 KiB pages of data, so of entries in the generation table."""
        return self.data_bytes // PAGE_BYTES

    @property
    def file_bytes(self) -> int:
        """Size of the whole file."""
        return self.data_offset + self.data_bytes

    @property
    def table_end(self) -> int:
        """Offset behind the last generation."""
        return self.table_offset + self.pages * _GENERATION_BYTES

    def pack(self) -> bytes:
        """Return the bytes that start the file, with their checksum."""
        who = self.identity
        fields = _FIELDS.pack(
            _MAGIC,
            _VERSION,
            who.kind,
            who.arena_id,
            who.log_id,
            who.boot_id,
            who.tenant,
            self.data_bytes,
            self.table_offset,
            self.data_offset,
        )
        return fields + _CRC.pack(zlib.crc32(fields))

    @classmethod
    def unpack(cls, page: bytes, file_bytes: int) -> Self:
        """Return the header that ``page`` starts with, if it is whole and describes a file of ``file_bytes``.

        Raises:
            ArenaHeaderError: Names the field that is wrong.
        """
        _require_little_endian()
        if len(page) < _FIELDS.size + _CRC.size:
            raise _refusal("size", f"{len(page)} bytes hold no header")
        magic, version, kind, arena_id, log_id, boot_id, tenant, *geometry = _FIELDS.unpack_from(page)
        if magic != _MAGIC:
            raise _refusal("magic", "this region is not an arena")
        if version != _VERSION:
            raise _refusal("version", f"arena format {version}, this program reads {_VERSION}")
        if _CRC.unpack_from(page, _FIELDS.size)[0] != zlib.crc32(page[: _FIELDS.size]):
            raise _refusal("crc", "the header is damaged")
        header = cls(ArenaIdentity(log_id, boot_id, arena_id, tenant, kind), *geometry)
        header._check_geometry(file_bytes)
        return header

    def _check_geometry(self, file_bytes: int) -> None:
        if self.data_bytes <= 0 or self.data_bytes % PAGE_BYTES or self.data_offset % PAGE_BYTES:
            raise _refusal("data_bytes", "the data area is not made of whole pages")
        if self.table_offset < PAGE_BYTES or self.table_offset % PAGE_BYTES or self.table_end > self.data_offset:
            raise _refusal("table_offset", "the generation table overlaps its neighbours")
        if self.file_bytes != file_bytes:
            raise _refusal("size", f"the header describes {self.file_bytes} bytes, the file has {file_bytes}")


def _refusal(field: str, why: str) -> ArenaHeaderError:
    return ArenaHeaderError(why, field=f"arena.{field}", remedy="drop the region; what it held becomes a miss")


def _require_little_endian() -> None:
    # Generations are read and written as one native 8-byte access, since a torn one could pass for a right one.
    if sys.byteorder != "little":
        raise _refusal("byteorder", "arenas are little-endian, this machine is not")
