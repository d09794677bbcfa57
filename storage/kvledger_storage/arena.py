"""An arena: a long-lived shared-memory region of one tenant and one kind, in which the daemon places objects.

Only the daemon and its tensor worker map it writable; readers get a descriptor that was opened read-only, through which
the kernel allows no writable map. Its size is sealed, so a reader never meets a page that went away, and it is a memfd,
so it lives exactly as long as somebody holds it: the service manager's descriptor store carries it over a restart.

Nothing here decides: which slot is whose is the core's business, and every method does what an effect says. Methods
that touch many pages block for a while and are meant for worker threads; each says so.
"""

import array
import contextlib
import fcntl
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Self

from kvledger.arena_header import ArenaHeader, ArenaHeaderError, ArenaIdentity
from kvledger.huge_pages import collapse
from kvledger.memfd import PAGE_BYTES, advise_huge, check_sealed, create_sealed, fence, map_shared, populate

__all__ = ["Arena", "ArenaRefusedError"]

# One write of zeros; the source stays in the second-level cache.
_ZEROS: Final = bytes(256 << 10)


class ArenaRefusedError(ArenaHeaderError):
    """A descriptor that came back from the store is not the arena that it should be."""


class Arena:
    """One arena, mapped writable. Made by `create` or `adopt`, never directly.

    Attributes:
        fd: Its descriptor, read and write; what goes into the descriptor store.
        header: Its identity and geometry.
    """

    __slots__ = ("_data", "_map", "_table", "fd", "header")

    def __init__(self, fd: int, header: ArenaHeader) -> None:
        self.fd: Final = fd
        self.header = header
        self._map: Final = map_shared(fd, header.file_bytes, writable=True)
        whole = memoryview(self._map)
        # A native 8-byte store: struct would write byte by byte, and a reader could see half a generation.
        self._table: Final = whole[header.table_offset : header.table_end].cast("Q")
        self._data: Final = whole[header.data_offset :]

    def __repr__(self) -> str:
        return f"<Arena {self.arena_id}: {self.data_bytes} bytes of kind {self.header.identity.kind}>"

    @classmethod
    def create(cls, identity: ArenaIdentity, data_bytes: int) -> Self:
        """Make an arena whose memory is all there, so that no later write waits for a page or dies for want of one.

        Blocks for about a second a GiB.

        Args:
            identity: Log, boot, id (never used before in this log), tenant and kind.
            data_bytes: Size of the data area, a multiple of 4,096.

        Raises:
            CapacityError: Too little memory, or no descriptor left.
        """
        header = ArenaHeader.plan(identity, data_bytes)
        fd = create_sealed(f"kvledger-arena-{identity.arena_id}", header.file_bytes)
        try:
            arena = cls(fd, header)
            advise_huge(arena._map)
            populate(arena._map, fd, 0, header.file_bytes)
            if collapse(fd, header.file_bytes):
                populate(arena._map, fd, 0, header.file_bytes)  # maps what has moved, so that no write has to
        except BaseException:
            os.close(fd)
            raise
        packed = header.pack()
        arena._map[: len(packed)] = packed
        return arena

    @classmethod
    def adopt(cls, fd: int, log_id: bytes, boot_id: bytes) -> Self:
        """Take over an arena that outlived an earlier incarnation. Its bytes stay untrusted until they are verified.

        Args:
            fd: Descriptor from the store; becomes the arena's on success, stays the caller's otherwise.
            log_id: Id of the log that was replayed.
            boot_id: The machine's boot id.

        Raises:
            DescriptorError: It is not a sealed memfd.
            ArenaHeaderError: Its header is damaged, or of another format or geometry.
            ArenaRefusedError: It is an arena, of another log or boot, or opened read-only.
        """
        size = check_sealed(fd, field="arena")
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
            raise _refused("fd", "the descriptor is read-only")
        header = ArenaHeader.unpack(os.pread(fd, PAGE_BYTES, 0), size)
        if header.identity.log_id != log_id:
            raise _refused("log_id", f"it belongs to log {header.identity.log_id.hex()}")
        if header.identity.boot_id != boot_id:
            raise _refused("boot_id", "it was made before the machine was started")
        return cls(fd, header)

    @property
    def arena_id(self) -> int:
        """Id of this arena, never reused."""
        return self.header.identity.arena_id

    @property
    def data_bytes(self) -> int:
        """Size of the data area in bytes."""
        return self.header.data_bytes

    def view(self, offset: int, length: int) -> memoryview:
        """Return the writable bytes [offset, offset + length) of the data area.

        Raises:
            ValueError: See `check`.
        """
        self.check(offset, length)
        return self._data[offset : offset + length]

    def set_generations(self, moves: Iterable[tuple[int, int, int]]) -> None:
        """Move generations, given as (first data page, pages, generation), behind one fence, before any byte changes.

        Every page of an object bears its generation. So whatever older object a new one overlaps, wherever that began,
        its handles are stale before its bytes are.

        Raises:
            ValueError: A generation is 0, which no object has.
        """
        for page, count, generation in moves:
            if generation <= 0:
                raise ValueError(f"generation {generation} of page {page}: generations count from 1")
            self._table[page : page + count] = memoryview(array.array("Q", [generation]) * count)
        fence()

    def rewrite_table(self, generations: Iterable[tuple[int, int, int]], free: int) -> None:
        """Write the whole generation table anew, at adoption, before any connection is accepted.

        The daemon never reads the table: what stands in it after a restart is worth nothing, since a client of the
        daemon's own uid could have written it. Blocks for a copy of 1/512 of the arena.

        Args:
            generations: First data page, pages and generation of each live object, as the log says.
            free: Fresh number for all other pages, so that no old handle fits any of them.
        """
        table = array.array("Q", [free]) * self.header.pages
        for page, count, generation in generations:
            table[page : page + count] = array.array("Q", [generation]) * count
        self._table[:] = memoryview(table)
        fence()

    def read_only_fd(self) -> int:
        """Return a new descriptor of the same memory that can neither be written nor be mapped writable."""
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)

    def rekind(self, kind: int, generation: int) -> None:
        """Make the arena one of another kind of its tenant. Nothing may lie in it; blocks for a write of all of it.

        The generations go first, so that no handle that was ever given out fits a page when its bytes change, and the
        header last: an arena that a crash leaves half cleared is still of the older kind, which the log denies.

        Args:
            kind: Number of the kind.
            generation: Fresh number for all pages.

        Raises:
            OSError: The memory can not be written.
        """
        self.rewrite_table([], generation)
        self._zero()
        self.header = replace(self.header, identity=replace(self.header.identity, kind=kind))
        packed = self.header.pack()
        self._map[: len(packed)] = packed

    def _zero(self) -> None:
        """Fill the data area with zeros. Written through the descriptor, since that releases the interpreter lock."""
        position, end = self.header.data_offset, self.header.file_bytes
        while position < end:
            position += os.pwrite(self.fd, memoryview(_ZEROS)[: end - position], position)

    def check(self, offset: int, length: int) -> None:
        """Raise ValueError unless [offset, offset + length) lies in the data area; else the core is at fault."""
        if offset < 0 or length < 0 or offset + length > self.header.data_bytes:
            raise ValueError(f"[{offset}, {offset + length}) leaves {self!r}")

    def close(self) -> None:
        """Close the descriptor and drop the map. The memory lives on in the store and in the readers' maps.

        No job may be using the arena: those that read by descriptor would read whatever gets its number next.
        """
        self._table.release()
        self._data.release()
        os.close(self.fd)
        # A view that somebody still holds keeps the map until it is gone.
        with contextlib.suppress(BufferError):
            self._map.close()


def _refused(field: str, why: str) -> ArenaRefusedError:
    return ArenaRefusedError(why, field=f"arena.{field}", remedy="drop the region; what it held becomes a miss")
