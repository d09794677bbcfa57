"""The form of one record: a header page, then the payload padded with zeros to whole pages.

The header has a page of its own so that the payload starts page-aligned in the file and can be read straight into an
arena slot. It names its own place (log id, segment, offset) beside the object, so that a record that was swapped,
copied over or left from an earlier use of the place is told from the right one by its header alone. Its checksum covers
the whole page, so there is no byte in a record that nothing checks: header by CRC32C, payload by XXH3-128, padding by
being zero. A record whose padding has rotted is refused although its payload may be right, since the page that rotted
is the payload's own last one.

Engines never learn the log id, so a payload can not pretend to hold a record of its own.
"""

import enum
import struct
from typing import NamedTuple

import crc32c
import xxhash

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.pages import PAGE, padded

__all__ = [
    "FINGERPRINT_BYTES",
    "HASH_BYTES",
    "LAYOUT_BYTES",
    "LOG_ID_BYTES",
    "NO_NODE",
    "BadHeaderError",
    "NodeName",
    "RecordHeader",
    "RecordIn",
    "RecordKey",
    "RecordType",
    "check_key",
    "decode_header",
    "encode_header",
    "fingerprint_of",
    "looks_like_header",
    "record_bytes",
]

LOG_ID_BYTES = 16
LAYOUT_BYTES = 32
FINGERPRINT_BYTES = 16
HASH_BYTES = 32

_MAGIC = b"KVLRECRD"
_VERSION = 1
# magic, version, record type, kind, slot, cell, generation, payload length, segment, offset,
# layout, fingerprint, log id; commit, depth, residue (as -1 for none), node, node before it, residue hash; precision
_HEADER = struct.Struct("<8sHBBIQQQQQ32s16s16sQQq32s32s32sB")
_CRC = struct.Struct("<I")
_CRC_AT = PAGE - _CRC.size


class RecordType(enum.IntEnum):
    """What a record holds."""

    OBJECT = 1
    MANIFEST = 2


_RECORD_TYPES = frozenset(map(int, RecordType))


class NodeName(NamedTuple):
    """Which place of a prefix a record belongs to, so that it is found again without a log.

    Attributes:
        depth: Blocks from the root to the end of the last whole block.
        node: Chain hash of that block, 32 bytes; zeros at the root.
        parent: Chain hash of the block before it, 32 bytes; zeros at the root and for the first block.
        residue: Tokens after it; -1 if the record belongs to the block itself.
        residue_hash: Their hash, 32 bytes; zeros if there are none.
    """

    depth: int = 0
    node: bytes = bytes(32)
    parent: bytes = bytes(32)
    residue: int = 0
    residue_hash: bytes = bytes(32)


NO_NODE = NodeName()


class RecordKey(NamedTuple):
    """What a record is of; all fields are opaque to the disk tier.

    Attributes:
        cell: First half of the object id, u64.
        slot: Second half of the object id, u32.
        generation: u64 of the reservation that made the bytes.
        layout: Digest of the layout, 32 bytes.
        kind: Number of the kind, u8.
        length: Bytes of payload.
        fingerprint: XXH3-128 of the payload, 16 bytes, big-endian as `fingerprint_of` returns it.
        record_type: Bytes of an object, or the manifest of a boundary.
        commit: u64 that objects have in common which were committed together.
        at: Which place of a prefix it belongs to.
        precision: What the payload is to the object, u8; 0 for its very bytes.
    """

    cell: int
    slot: int
    generation: int
    layout: bytes
    kind: int
    length: int
    fingerprint: bytes
    record_type: RecordType = RecordType.OBJECT
    commit: int = 0
    at: NodeName = NO_NODE
    precision: int = 0


class RecordIn(NamedTuple):
    """A record to be written: its key, and its payload of `key.length` bytes."""

    key: RecordKey
    payload: memoryview


class RecordHeader(NamedTuple):
    """A header as it was read: what the record says it is, and where it says it lies."""

    key: RecordKey
    ref: BlobRef
    log_id: bytes


class BadHeaderError(ValueError):
    """These 4,096 bytes are no header that this version wrote."""


def fingerprint_of(payload: memoryview | bytes) -> bytes:
    """Return the XXH3-128 of `payload`; the interpreter lock is released meanwhile."""
    return xxhash.xxh3_128_digest(payload)


def record_bytes(length: int) -> int:
    """Return the bytes that a record with `length` bytes of payload takes in a segment."""
    return PAGE + padded(length)


def check_key(key: RecordKey) -> None:
    """Refuse a key that its header could not hold.

    Raises:
        ValueError: A field is out of range; the text names it.
    """
    limits = {"cell": 64, "slot": 32, "generation": 64, "kind": 8, "length": 48, "commit": 64, "precision": 8}
    for name, bits in limits.items():
        if not 0 <= getattr(key, name) < 1 << bits:
            raise ValueError(f"{name}: {getattr(key, name)} does not fit {bits} bits")
    for name, size in (("layout", LAYOUT_BYTES), ("fingerprint", FINGERPRINT_BYTES)):
        if len(getattr(key, name)) != size:
            raise ValueError(f"{name}: {len(getattr(key, name))} bytes where {size} are meant")
    if not all(len(value) == HASH_BYTES for value in (key.at.node, key.at.parent, key.at.residue_hash)):
        raise ValueError(f"at: its hashes have {HASH_BYTES} bytes each")


def encode_header(page: memoryview, key: RecordKey, ref: BlobRef, log_id: bytes) -> None:
    """Write the header of the record `key` at `ref` into `page`, 4,096 writable bytes."""
    page[:] = bytes(PAGE)
    _HEADER.pack_into(
        page,
        0,
        _MAGIC,
        _VERSION,
        key.record_type,
        key.kind,
        key.slot,
        key.cell,
        key.generation,
        key.length,
        ref.segment,
        ref.offset,
        key.layout,
        key.fingerprint,
        log_id,
        key.commit,
        key.at.depth,
        key.at.residue,
        key.at.node,
        key.at.parent,
        key.at.residue_hash,
        key.precision,
    )
    _CRC.pack_into(page, _CRC_AT, crc32c.crc32c(page[:_CRC_AT]))


def looks_like_header(page: memoryview) -> bool:
    """Return whether `page` starts as a header does; cheap, so that a scan can step over what is none."""
    return page[: len(_MAGIC)] == _MAGIC


def decode_header(page: memoryview) -> RecordHeader:
    """Return what the header in `page`, 4,096 bytes, says.

    Raises:
        BadHeaderError: Magic, version, checksum or record type is not right.
    """
    if not looks_like_header(page):
        raise BadHeaderError("no record starts here")
    if _CRC.unpack_from(page, _CRC_AT)[0] != crc32c.crc32c(page[:_CRC_AT]):
        raise BadHeaderError("the checksum of the header is wrong")
    fields = _HEADER.unpack_from(page)
    _, version, record_type, kind, slot, cell, generation, length, segment, offset, *rest = fields
    layout, fingerprint, log_id, commit, depth, residue, node, parent, residue_hash, precision = rest
    if version != _VERSION or record_type not in _RECORD_TYPES:
        raise BadHeaderError(f"version {version}, record type {record_type} are not known here")
    at = NodeName(depth, node, parent, residue, residue_hash)
    sort = RecordType(record_type)
    key = RecordKey(cell, slot, generation, layout, kind, length, fingerprint, sort, commit, at, precision)
    return RecordHeader(key, BlobRef(segment, offset, length), log_id)
