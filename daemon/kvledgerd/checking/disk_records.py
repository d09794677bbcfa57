"""Records on disk, compared with what the state says of them: headers always, bytes on request."""

from collections.abc import Iterator
from pathlib import Path

from kvledger_storage.disk import RecordKey, RecordType
from kvledger_storage.disk.blob_io import OsBlobIO
from kvledger_storage.disk.errors import RecordMissError
from kvledger_storage.disk.reader import RecordReader
from kvledgerd.checking.claims import DiskClaim

__all__ = ["DiskRecords"]


class DiskRecords:
    """The disk tier of a data directory, read beside the daemon that owns it.

    Args:
        data: The data directory.
        log_id: Id of its log, 16 bytes.
        deep: Whether all bytes are read and compared with their fingerprints.
    """

    def __init__(self, data: Path, log_id: bytes, *, deep: bool) -> None:
        self._reader = RecordReader(OsBlobIO(), str(data / "data"), log_id, direct=False)
        self._deep = deep

    def copy(self, claim: DiskClaim) -> bytes | None:
        """Return the bytes of a claim; None if its record is another one or can not be read whole."""
        found = bytearray(claim.key.length)
        try:
            self._reader.read_into(claim.ref, claim.key, memoryview(found))
        except RecordMissError:
            return None
        return bytes(found)

    def wrong(self, claim: DiskClaim) -> str:
        """Return what does not fit a claim, empty if all does."""
        try:
            found = self._reader.read_key(claim.ref)
            different = ", ".join(_differences(claim.key, found))
            if different:
                return f"{self._name(claim)} is another record: {different}"
            if self._deep:
                self._reader.read_into(claim.ref, found, memoryview(bytearray(found.length)))
        except RecordMissError as error:
            return f"{self._name(claim)}: {error.message}"
        return ""

    @staticmethod
    def _name(claim: DiskClaim) -> str:
        what = "manifest" if claim.key.record_type is RecordType.MANIFEST else f"slot {claim.slot}"
        return f"cell {claim.cell} {what}, in segment {claim.ref.segment} at {claim.ref.offset}"


def _differences(meant: RecordKey, found: RecordKey) -> Iterator[str]:
    unknown = {"generation", "fingerprint"} if meant.record_type is RecordType.MANIFEST else set()
    for field, one, other in zip(RecordKey._fields, meant, found, strict=True):
        if one != other and field not in unknown:
            yield f"{field} is {_shown(other)}, the log says {_shown(one)}"


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
