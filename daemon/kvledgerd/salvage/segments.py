"""Reading all data segments by their headers alone; changes nothing, and needs neither log nor daemon.

What is learnt of each record is what its own header says, checked by checksum, place and log id. Its bytes are read
only on request: whoever restores a record compares them with the fingerprint anyway.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from kvledger.errors import NotFoundError
from kvledger.layout import Layout
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk import OsBlobIO, RecordKey, RecordMissError, RecordType, ScannedDamage
from kvledger_storage.disk.pages import PAGE
from kvledger_storage.disk.reader import RecordReader
from kvledger_storage.disk.scan import SegmentScanner
from kvledger_storage.disk.segments import log_id_in
from kvledger_storage.disk.table import SegmentTable
from kvledgerd.core.copies.manifest import decode_manifest

__all__ = ["Found", "read_segments"]


class Found(msgspec.Struct):
    """What the segments of a directory tell.

    Attributes:
        log_id: Log whose records these are.
        segments: Segments that were read to their end.
        of: Segments in all.
        size: Bytes of those read.
        records: Every sound record: what it says it is, and where it lies; dead ones as well.
        damage: Where no sound record begins, and records whose bytes are not right if these were read.
        layouts: Digest to the tenant and the layout, from manifests.
        chains: Chain hash of a block to that of the block before it; empty for the first one.
    """

    log_id: bytes
    segments: int = 0
    of: int = 0
    size: int = 0
    records: list[tuple[RecordKey, BlobRef]] = []
    damage: list[ScannedDamage] = []
    layouts: dict[bytes, tuple[str, Layout]] = {}
    chains: dict[bytes, bytes] = {}


def read_segments(data: Path, *, verify: bool, progress: Callable[[Found], object]) -> Found:
    """Read all segments below a data directory, oldest first; an interruption leaves what was found so far.

    Args:
        data: The data directory.
        verify: Whether all bytes are read and compared with their fingerprints.
        progress: Called behind each segment.

    Raises:
        NotFoundError: There is no segment whose header can be read.
        DirectoryError: The directory can not be listed.
        NewerVersionError: A segment was written by a newer version.
    """
    directory = str(data / "data")
    found = Found(_log_id(data / "data"))
    table = SegmentTable(directory)
    table.load(OsBlobIO(), found.log_id)
    reader = RecordReader(OsBlobIO(), directory, found.log_id, direct=False)
    scanner = SegmentScanner(OsBlobIO(), directory, found.log_id)
    infos = table.infos()
    found.of = len(infos)
    try:
        for info in infos:
            for step in scanner.scan(info.number, info.file_bytes):
                if isinstance(step, ScannedDamage):
                    found.damage.append(step)
                else:
                    _take(found, reader, step.key, step.ref, verify=verify)
            found.segments += 1
            found.size += info.file_bytes
            progress(found)
    except KeyboardInterrupt:
        return found
    return found


def _log_id(directory: Path) -> bytes:
    """Return the log that most of the readable headers name."""
    named = list(_named(directory))
    if not named:
        why = f"{directory} holds no data segment with a sound header"
        remedy = "if something was written to disk, name the directory that holds its folder data"
        raise NotFoundError(why, field="data", remedy=remedy)
    return max(dict.fromkeys(named), key=named.count)


def _named(directory: Path) -> Iterator[bytes]:
    for path in sorted(directory.glob("*.seg")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                log_id = log_id_in(memoryview(file.read(PAGE)))
            if log_id is not None:
                yield log_id


def _take(found: Found, reader: RecordReader, key: RecordKey, ref: BlobRef, *, verify: bool) -> None:
    is_manifest = key.record_type is RecordType.MANIFEST
    if verify or is_manifest:
        payload = memoryview(bytearray(key.length))
        try:
            reader.read_into(ref, key, payload)
        except RecordMissError as error:
            found.damage.append(ScannedDamage(ref.segment, ref.offset, ref.length, error.message))
            return
        if is_manifest and not _take_manifest(found, key, payload):
            found.damage.append(ScannedDamage(ref.segment, ref.offset, ref.length, "a manifest of an unknown form"))
            return
    found.records.append((key, ref))
    if key.at.depth:
        found.chains[key.at.node] = key.at.parent if key.at.depth > 1 else b""


def _take_manifest(found: Found, key: RecordKey, payload: memoryview) -> bool:
    manifest = decode_manifest(payload)
    if manifest is None or manifest.layout.digest != key.layout:
        return False
    found.layouts[key.layout] = (manifest.tenant, manifest.layout)
    before = b""
    for start in range(0, len(manifest.chain), 32):
        node = manifest.chain[start : start + 32]
        found.chains[node] = before
        before = node
    return True
