"""One frame holds one batch of events and proves its own place in the log.

A frame answers five questions without any other file: is it whole (two CRC32C), is it ours (the header's CRC starts
from the log's id, so that neither a foreign log nor bytes that a client had stored can pass for a frame of this one),
does it follow its predecessor (BLAKE2b-256 of the frame before, over everything), what had been synced when it was
written (`synced_through`, which lets recovery tell a torn tail from rot), and under which boot and incarnation.
The header's CRC covers the payload's CRC; the chain covers both.

The log knows an event only as one msgpack value. The payload is a msgpack array of them, made by joining the bytes.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec
from crc32c import crc32c

from kvledger.counts import counted
from kvledger_storage.log.errors import EventRefusedError, FrameError, LogVersionError
from kvledger_storage.log.io import BOOT_ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC: Final = b"KVLFRAME"
CODEC_VERSION: Final = 1
CHAIN_BYTES: Final = 32
LOG_ID_BYTES: Final = 16
MAX_PAYLOAD_BYTES: Final = 4 << 20
# magic, payload length, count, first seq, codec version, incarnation, synced through, boot id, previous chain,
# payload CRC32C, header CRC32C; little-endian, no padding, so that no bit of a frame is outside a checksum
_HEADER: Final = struct.Struct(f"<8sIIQIQQ{BOOT_ID_BYTES}s{CHAIN_BYTES}sII")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size
ARRAY_HEADER_BYTES: Final = 5

assert len(MAGIC) == 8
assert any(MAGIC), "a frame must not begin like the zeros behind the last one"
assert HEADER_BYTES == 100
assert MAX_PAYLOAD_BYTES < 1 << 32

_ONE_VALUE: Final = msgspec.msgpack.Decoder(msgspec.Raw)
_ARRAY: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])


class FrameHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame says about itself.

    Attributes:
        length: Bytes of payload.
        count: Number of events.
        first_seq: Sequence number of the first event.
        incarnation: Run of the daemon that wrote it.
        synced_through: Last seq whose sync had returned when this frame was written.
        boot_id: Boot of the machine under which it was written, 16 bytes.
        previous_chain: BLAKE2b-256 of the frame before, header and payload.
        payload_crc: CRC32C of the payload.
    """

    length: int
    count: int
    first_seq: int
    incarnation: int
    synced_through: int
    boot_id: bytes
    previous_chain: bytes
    payload_crc: int

    @property
    def last_seq(self) -> int:
        """Sequence number of the last event."""
        return self.first_seq + self.count - 1


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A whole frame as it was read: `header`, `payload` bytes, and `chain`, the digest that the next one must name."""

    header: FrameHeader
    payload: bytes
    chain: bytes

    @property
    def size(self) -> int:
        """Bytes that the frame takes in its segment."""
        return HEADER_BYTES + len(self.payload)

    def events(self) -> list[bytes]:
        """Return the events as the bytes that were submitted.

        Raises:
            FrameError: The payload is whole, but not an array of as many events as the header says.
        """
        expected = f"a msgpack array of {counted(self.header.count, 'event')}"
        try:
            values = _ARRAY.decode(self.payload)
        except msgspec.DecodeError as error:
            raise FrameError("payload", HEADER_BYTES, expected, str(error)) from error
        if len(values) != self.header.count:
            raise FrameError("payload", HEADER_BYTES, expected, counted(len(values), "event"))
        return [bytes(value) for value in values]


def join_events(events: Sequence[bytes], most: int) -> bytes:
    """Return events joined as a payload holds them, and refuse those that would make a frame unreadable.

    All of them are decoded at once: if they fall into values of just their own lengths, each is one value.

    Args:
        events: Encoded events, at least one.
        most: Bytes that one of them may have.

    Raises:
        EventRefusedError: An event is not exactly one msgpack value, or has more than `most` bytes.
    """
    lengths = list(map(len, events))
    header = _array_header(len(events))
    payload = b"".join((header, *events))
    try:
        found = list(map(len, _ARRAY.decode(payload)))
    except msgspec.DecodeError:
        found = []
    if found != lengths or max(lengths) > most:
        _refuse(events, most)
    return payload[len(header) :]


def _refuse(events: Sequence[bytes], most: int) -> None:
    for index, event in enumerate(events):
        if len(event) > most:
            raise EventRefusedError(index, f"has {len(event)} bytes, {most} is the most; split it")
        try:
            _ONE_VALUE.decode(event)
        except msgspec.DecodeError as error:
            raise EventRefusedError(index, f"is not one msgpack value ({error}); encode it first") from error


def chain_of(frame: bytes | memoryview) -> bytes:
    """Return the BLAKE2b-256 of an encoded frame, which the next frame and the next segment name."""
    return blake2b(frame, digest_size=CHAIN_BYTES).digest()


def encode_frame(
    events: Sequence[bytes],
    count: int,
    *,
    log_id: bytes,
    first_seq: int,
    incarnation: int,
    synced_through: int,
    boot_id: bytes,
    previous_chain: bytes,
) -> bytes:
    """Return one frame, header and payload, of `count` events, which may come joined.

    Raises:
        ValueError: The payload would exceed `MAX_PAYLOAD_BYTES`; who calls splits batches.
    """
    payload = b"".join((_array_header(count), *events))
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"payload of {len(payload)} bytes exceeds the cap of {MAX_PAYLOAD_BYTES}; split the batch")
    fields = (MAGIC, len(payload), count, first_seq, CODEC_VERSION, incarnation, synced_through)
    unsigned = _HEADER.pack(*fields, boot_id, previous_chain, crc32c(payload), 0)[: -_CRC.size]
    return b"".join((unsigned, _CRC.pack(crc32c(unsigned, crc32c(log_id))), payload))


def decode_header(data: bytes, offset: int, log_id: bytes) -> FrameHeader:
    """Return the frame header at `offset` of `data`, the content of a segment from its first byte.

    Raises:
        FrameError: There is no whole header of this log.
        LogVersionError: There is one, but its codec version is newer than this code.
    """
    raw = data[offset : offset + HEADER_BYTES]
    if raw[: len(MAGIC)] != MAGIC:
        raise FrameError("frame magic", offset, MAGIC.hex(), raw[: len(MAGIC)].hex() or "end of file")
    if len(raw) < HEADER_BYTES:
        raise FrameError("frame header", offset, f"{HEADER_BYTES} bytes", f"{len(raw)} bytes, then end of file")
    _, length, count, first_seq, codec, incarnation, synced, boot_id, chain, payload_crc, crc = _HEADER.unpack(raw)
    computed = crc32c(raw[: -_CRC.size], crc32c(log_id))
    if computed != crc:
        raise FrameError("frame header CRC32C", offset, f"{computed:08x} for these bytes and this log", f"{crc:08x}")
    if codec > CODEC_VERSION:
        raise LogVersionError(f"frame of seq {first_seq}", "codec version", codec, CODEC_VERSION)
    return FrameHeader(
        length=length,
        count=count,
        first_seq=first_seq,
        incarnation=incarnation,
        synced_through=synced,
        boot_id=boot_id,
        previous_chain=chain,
        payload_crc=payload_crc,
    )


def decode_frame(data: bytes, offset: int, log_id: bytes) -> Frame:
    """Return the frame at `offset` of `data`, checked by both CRCs. Its place in the chain is the caller's to check.

    Raises:
        FrameError: The frame is torn, damaged or of another log; the error says what was expected and where.
        LogVersionError: Its codec version is newer than this code.
    """
    header = decode_header(data, offset, log_id)
    start = offset + HEADER_BYTES
    payload = data[start : start + header.length]
    if len(payload) < header.length:
        raise FrameError("frame length", offset, f"{header.length} bytes of payload", f"{len(payload)} before the end")
    computed = crc32c(payload)
    if computed != header.payload_crc:
        raise FrameError("payload CRC32C", offset, f"{header.payload_crc:08x}", f"{computed:08x}")
    return Frame(header=header, payload=payload, chain=chain_of(memoryview(data)[offset : start + header.length]))


def _array_header(count: int) -> bytes:
    """Return the msgpack header of an array of `count` elements, in its shortest form."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + struct.pack(">H", count) if count < 1 << 16 else b"\xdd" + struct.pack(">I", count)
