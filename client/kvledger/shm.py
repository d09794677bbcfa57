"""What a client does with shared memory: it reads arenas, and hands bytes in through a ring of its own.

An arena is mapped read-only from a descriptor that was opened read-only, so neither a bug nor a library can write to
it. The ring is the other way round: only the client writes, and the daemon reads it by descriptor, never by a map, so
that nothing a client does to its ring can fault the daemon.

**Reading safely.** The daemon may take back memory under a reader whose lease was revoked. It moves the generation
first and reuses the bytes after. So a reader copies (or finishes using) the bytes, then calls `ArenaView.is_current`
with the generation of its handle: a fence keeps the comparison behind the copy, and equal generations prove that all
bytes copied before were those of the handle. Comparing before the copy proves nothing.

Maps are MADV_DONTFORK: touching one in a forked child would be a segmentation fault, so all entrances check the process
and raise instead. The check costs one `getpid`.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from sys import byteorder
from types import TracebackType
from typing import Final, Self

from kvledger.arena_header import ArenaHeader
from kvledger.errors import CallerError, CapacityError, LimitError
from kvledger.memfd import (
    HUGE_BYTES,
    PAGE_BYTES,
    DescriptorError,
    advise_huge,
    check_sealed,
    create_sealed,
    fence,
    map_shared,
)
from kvledger.ranges import FreeRanges

__all__ = ["ArenaView", "Ring", "RingFullError", "RingRange"]


class RingFullError(LimitError):
    """No contiguous range of the ring is free; one becomes free when the reply to an earlier `put` has come."""


class _OwnedMap:
    """Owner process of a map that children do not inherit."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    def _require_owner(self) -> None:
        if os.getpid() != self._pid:
            raise CallerError(
                f"{type(self).__name__} belongs to process {self._pid}, this is its child {os.getpid()}",
                field="process",
                remedy="open a cache of its own in the child",
            )


class ArenaView(_OwnedMap):
    """One arena of the daemon, read-only.

    Args:
        fd: Descriptor of the arena. It stays the caller's and may be closed at once.

    Raises:
        DescriptorError: It is not a sealed memfd.
        ArenaHeaderError: It is one, but not an arena of this format.
    """

    __slots__ = ("_data", "_map", "_table", "header")

    def __init__(self, fd: int) -> None:
        super().__init__()
        size = check_sealed(fd, field="arena")
        if size < PAGE_BYTES:
            raise DescriptorError(f"{size} bytes are less than one page", field="arena")
        self._map = map_shared(fd, size, writable=False)
        whole = memoryview(self._map)
        self.header: Final = ArenaHeader.unpack(bytes(whole[:PAGE_BYTES]), size)
        self._table = whole[self.header.table_offset : self.header.table_end].cast("Q")
        self._data = whole[self.header.data_offset :]

    def __repr__(self) -> str:
        return f"<ArenaView {self.header.identity.arena_id}: {self.header.data_bytes} bytes>"

    def buffer(self, offset: int, length: int) -> memoryview:
        """Return a read-only view of ``length`` bytes at ``offset`` of the data area; no byte is copied.

        Raises:
            CallerError: The range leaves the data area.
        """
        self._require_owner()
        if offset < 0 or length < 0 or offset + length > self.header.data_bytes:
            raise CallerError(
                f"[{offset}, {offset + length}) leaves an arena of {self.header.data_bytes} bytes",
                field="offset",
                remedy="use offset and length of a handle as they were given",
            )
        return self._data[offset : offset + length]

    def generation(self, offset: int) -> int:
        """Return the generation of the object that begins at ``offset``, read after all loads before this call."""
        self._require_owner()
        fence()
        return self._table[offset // PAGE_BYTES]

    def is_current(self, offset: int, generation: int, length: int = 1) -> bool:
        """Tell whether bytes copied before this call were those of a handle.

        All pages are compared: what came into the place of an object may have begun in the middle of it, or before it.

        Args:
            offset: The handle's offset.
            generation: The handle's generation.
            length: Bytes that were copied from the offset on.
        """
        self._require_owner()
        fence()
        first, pages = offset // PAGE_BYTES, -(-(offset % PAGE_BYTES + length) // PAGE_BYTES)
        return self._table[first : first + pages].tobytes() == generation.to_bytes(8, byteorder) * pages

    def close(self) -> None:
        """Drop the map; its memory stays mapped while buffers of it are held."""
        self._table.release()
        self._data.release()
        with contextlib.suppress(BufferError):
            self._map.close()


@dataclass(frozen=True, slots=True)
class RingRange:
    """A contiguous part of a ring that is taken until it is given back.

    Attributes:
        offset: Bytes from the start of the ring, a multiple of 4,096.
        length: Bytes asked for.
    """

    offset: int
    length: int


class Ring(_OwnedMap):
    """The staging ring of one connection: memory that this process fills and the daemon reads.

    Ranges are given from the lowest free address on, so that a writer that needs little touches little memory and
    comes back to pages that are warm. These move into huge pages after the ring was used once over. Threads may share
    a ring.

    Args:
        size: Bytes, rounded up to whole pages.

    Raises:
        CapacityError: The kernel gives no memory.
    """

    __slots__ = ("_closed", "_free", "_huge", "_lock", "_map", "_passed", "_reach", "_taken", "_view", "fd", "size")

    def __init__(self, size: int) -> None:
        super().__init__()
        if size <= 0:
            raise CallerError(f"a ring of {size} bytes can hold nothing", field="size", remedy="give a positive size")
        self.size: Final = _whole_pages(size)
        self.fd: Final = create_sealed("kvledger-ring", self.size)
        try:
            self._map = map_shared(self.fd, self.size, writable=True)
            advise_huge(self._map)
        except CapacityError:
            os.close(self.fd)
            raise
        self._view = memoryview(self._map)
        self._free = FreeRanges(self.size)
        self._taken: dict[int, int] = {}
        self._passed = self._reach = self._huge = 0
        self._lock = threading.Lock()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Ring {self.size} bytes, {self._free.total} free, {len(self._taken)} ranges taken>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take(self, length: int) -> RingRange:
        """Take ``length`` contiguous bytes; they stay taken until `give_back`.

        Raises:
            RingFullError: Nothing that long is free now.
            CallerError: ``length`` is not positive, or longer than the whole ring.
        """
        self._require_owner()
        if not 0 < length <= self.size:
            raise CallerError(
                f"{length} bytes never fit a ring of {self.size}",
                field="length",
                remedy="hand the object over in several ranges",
            )
        with self._lock:
            offset = self._free.take(_whole_pages(length))
            if offset is None:
                raise RingFullError(
                    f"{length} bytes asked for, {self._free.total} free, at most {self._free.longest} together",
                    field="ring",
                    remedy="wait for replies to earlier puts, or open the cache with a larger ring",
                )
            self._taken[offset] = length
            self._note_use(offset, length)
        return RingRange(offset, length)

    def _note_use(self, offset: int, length: int) -> None:
        """Have pages that are in use made huge, when as many bytes went through as the ring has."""
        self._passed += length
        self._reach = max(self._reach, (offset + length) // HUGE_BYTES * HUGE_BYTES)
        if self._passed >= self.size:
            self._passed = 0
            if self._reach > self._huge and not self._closed:
                self._huge = self._reach
                _begin_collapse(self.fd, self._reach)

    def give_back(self, part: RingRange) -> None:
        """Make a range free again, once the reply to the `put` that named it has come.

        Raises:
            CallerError: The range is not taken.
        """
        with self._lock:
            if self._taken.get(part.offset) != part.length:
                raise CallerError(f"{part} is not taken", field="range", remedy="give each range back once")
            del self._taken[part.offset]
            self._free.give_back(part.offset, _whole_pages(part.length))

    def buffer(self, part: RingRange) -> memoryview:
        """Return the writable bytes of a range."""
        self._require_owner()
        return self._view[part.offset : part.offset + part.length]

    def close(self) -> None:
        """Close the descriptor and drop the map; closing twice is nothing. Buffers that are held stay valid."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._view.release()
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self._map.close()

    def after_fork_in_child(self) -> None:
        """Close the child's copy of the descriptor; the map was not inherited.

        One that was closed before is left alone, since its number may be another file's by now.
        """
        if not self._closed:
            os.close(self.fd)


def _begin_collapse(fd: int, length: int) -> None:
    """Begin it in a thread of its own; a process that may have no more descriptors or threads goes on without."""
    try:
        from kvledger.huge_pages import collapse  # noqa: PLC0415 - ctypes, which who stores little need not load

        ring = os.dup(fd)
    except (ImportError, OSError):
        return
    try:
        threading.Thread(target=_collapse, args=(collapse, ring, length), name="kvledger-ring", daemon=True).start()
    except RuntimeError:  # as at the end of the interpreter
        os.close(ring)


def _collapse(collapse: Callable[[int, int], bool], fd: int, length: int) -> None:
    try:
        collapse(fd, length)
    finally:
        os.close(fd)


def _whole_pages(length: int) -> int:
    return -(-length // PAGE_BYTES) * PAGE_BYTES
