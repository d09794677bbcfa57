"""The `id` file: which log this is, in which data format, and what it follows.

It is the last thing that is published when a log is made, after its first segment, so a directory with an id always
has (or had, and then it is rot) a segment. It is replaced whole and never changed in place. Its checksum is the last
four bytes whatever the version, so that a newer format is told from a damaged file before anything else is trusted.
"""

from __future__ import annotations

import os
import struct
from hashlib import blake2b
from typing import Final

import msgspec
from crc32c import crc32c

from kvledger_storage.log.errors import FrameError, LogVersionError
from kvledger_storage.log.frame import CHAIN_BYTES, LOG_ID_BYTES
from kvledger_storage.log.segment import FORMAT_VERSION

ID_NAME: Final = "id"
_MAGIC: Final = b"KVLOGID1"
_PREFIX: Final = struct.Struct("<8sI")
# log id, first seq, whether it follows a quarantined log, then of that one: log id, last whole seq, its chain
_BODY: Final = struct.Struct(f"<{LOG_ID_BYTES}sQ?{LOG_ID_BYTES}sQ{CHAIN_BYTES}s")
_CRC: Final = struct.Struct("<I")
_SIZE: Final = _PREFIX.size + _BODY.size + _CRC.size


class Predecessor(msgspec.Struct, frozen=True, kw_only=True):
    """The log that was quarantined when this one began: its id, its last whole seq, and the chain up to there."""

    log_id: bytes
    last_seq: int
    chain: bytes


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a log this log.

    Attributes:
        log_id: Random 128 bits.
        first_seq: Sequence number of the first event; 1, or above all that a quarantined predecessor had given away.
        predecessor: The log that this one follows, if it was quarantined.
    """

    log_id: bytes
    first_seq: int = 1
    predecessor: Predecessor | None = None

    @property
    def root_chain(self) -> bytes:
        """The chain that the first segment names: a digest of the identity, so it binds the predecessor's chain too."""
        return blake2b(encode_identity(self), digest_size=CHAIN_BYTES).digest()


def new_identity(*, first_seq: int = 1, predecessor: Predecessor | None = None) -> Identity:
    """Return the identity of a log that does not exist yet."""
    return Identity(log_id=os.urandom(LOG_ID_BYTES), first_seq=first_seq, predecessor=predecessor)


def encode_identity(identity: Identity) -> bytes:
    """Return the content of the id file."""
    before = identity.predecessor or Predecessor(log_id=bytes(LOG_ID_BYTES), last_seq=0, chain=bytes(CHAIN_BYTES))
    body = _BODY.pack(
        identity.log_id,
        identity.first_seq,
        identity.predecessor is not None,
        before.log_id,
        before.last_seq,
        before.chain,
    )
    unsigned = _PREFIX.pack(_MAGIC, FORMAT_VERSION) + body
    return unsigned + _CRC.pack(crc32c(unsigned))


def decode_identity(data: bytes) -> Identity:
    """Return the identity in an id file.

    Raises:
        FrameError: The file is damaged.
        LogVersionError: The data format is newer than this code.
    """
    if len(data) < _PREFIX.size + _CRC.size or data[: len(_MAGIC)] != _MAGIC:
        raise FrameError("id magic", 0, _MAGIC.hex(), data[: len(_MAGIC)].hex() or "an empty file")
    unsigned, (crc,) = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])
    if crc32c(unsigned) != crc:
        raise FrameError("id CRC32C", 0, f"{crc32c(unsigned):08x} for these bytes", f"{crc:08x}")
    _, version = _PREFIX.unpack_from(data)
    if version > FORMAT_VERSION:
        raise LogVersionError(ID_NAME, "data format version", version, FORMAT_VERSION)
    if len(data) != _SIZE:
        raise FrameError("id length", 0, f"{_SIZE} bytes", f"{len(data)} bytes")
    log_id, first_seq, follows, before_id, before_seq, before_chain = _BODY.unpack_from(data, _PREFIX.size)
    before = Predecessor(log_id=before_id, last_seq=before_seq, chain=before_chain) if follows else None
    return Identity(log_id=log_id, first_seq=first_seq, predecessor=before)
