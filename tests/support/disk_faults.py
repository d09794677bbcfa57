"""A seam that fails on purpose, and short ways to make records and stores."""

import errno
import mmap
import os

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk import DiskStore, OsBlobIO, RecordIn, RecordKey, RecordType, fingerprint_of

LOG_ID = b"log-id-16-bytes."
LAYOUT = bytes(range(32))
PLENTY = 1 << 30

FAULTS = ("eio", "enospc", "eintr", "short")


class UnsyncedIO(OsBlobIO):
    """The real calls without the waiting: in tests where nothing crashes, a sync makes no difference that shows."""

    def fdatasync(self, fd):
        """Return at once."""

    def sync_directory(self, path):
        """Return at once."""


class FaultyIO:
    """Passes calls on to the real ones, but fails call number `at` (from 1), once or from then on.

    A short fault halves a transfer; on any other call it is EIO, since nothing else can be short.
    """

    def __init__(self, at=0, fault="eio", *, sticky=False, only=None):
        self.real = UnsyncedIO()
        self.at = at
        self.fault = fault
        self.sticky = sticky
        self.only = only
        self.calls = []
        self.injected = 0

    def __getattr__(self, name):
        method = getattr(self.real, name)

        def call(*args):
            if self.only is None or name == self.only:
                self.calls.append(name)
                if self.at and (len(self.calls) == self.at or (self.sticky and len(self.calls) > self.at)):
                    self.injected += 1
                    return self._fail(name, method, args)
            return method(*args)

        return call

    def _fail(self, name, method, args):
        if self.fault == "short" and name in {"pwrite", "preadv"}:
            fd, buffers, offset = args
            first = buffers[0]
            return method(fd, [first[: max(1, len(first) // 2)]], offset)
        if name == "close":
            method(*args)  # the system gives the descriptor back whatever it answers
        number = {"enospc": errno.ENOSPC, "eintr": errno.EINTR}.get(self.fault, errno.EIO)
        raise OSError(number, os.strerror(number))


class NoDirectIO(OsBlobIO):
    """A file system that refuses the flag of direct I/O, as overlays and old tmpfs do."""

    def __init__(self):
        self.refused = 0

    def open(self, path, flags, mode=0o600):
        """Refuse the flag."""
        if flags & os.O_DIRECT:
            self.refused += 1
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return super().open(path, flags, mode)


def record(slot, size=10_000, *, generation=1, record_type=RecordType.OBJECT, layout=LAYOUT, kind=1):
    """Return a record whose payload differs in every slot and generation."""
    payload = (f"{slot}/{generation}.".encode() * (size // 3 + 1))[:size]
    key = RecordKey(7, slot, generation, layout, kind, size, fingerprint_of(payload), record_type)
    return RecordIn(key, memoryview(payload))


def open_store(directory, io=None, *, segment_bytes=1 << 20, quota_bytes=PLENTY, log_id=LOG_ID):
    """Open a store with small segments, without the waiting unless `io` says otherwise."""
    seam = io or UnsyncedIO()
    return DiskStore.open(str(directory), log_id, io=seam, segment_bytes=segment_bytes, quota_bytes=quota_bytes)


def read(store, ref, key):
    """Return the payload at `ref` as bytes, read into page-aligned memory as an arena is."""
    buffer = memoryview(mmap.mmap(-1, max(1, key.length)))
    store.read_into(ref, key, buffer)
    return bytes(buffer[: key.length])


def segment_file(directory, ref_or_number):
    """Return the path of a segment."""
    number = ref_or_number.segment if isinstance(ref_or_number, BlobRef) else ref_or_number
    return directory / "data" / f"{number:010d}.seg"


def overwrite(path, offset, data):
    """Write `data` into a file from outside."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path, offset):
    """Flip one bit of a file from outside."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))
