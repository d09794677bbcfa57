"""The daemon's side of staging: a client's ring, read by descriptor and never mapped.

A map of memory that somebody else can change is a risk that a read is not: the worst that a hostile ring can do to a
`preadv` is to return other bytes, and those are hashed where they arrived.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Final, Self

from kvledger.errors import CallerError
from kvledger.memfd import DescriptorError, check_sealed

__all__ = ["RingReader"]


class RingReader:
    """A ring that passed all checks. Made by `accept`. Threads may read from it at the same time.

    A connection may end while a worker reads: `close` then leaves the descriptor to the last reader, since the number
    of a closed one may be another file's a moment later.

    Attributes:
        size: Bytes, as declared and as sealed.
    """

    __slots__ = ("_closed", "_fd", "_lock", "_readers", "size")

    def __init__(self, fd: int, size: int) -> None:
        self._fd: Final = fd
        self.size: Final = size
        self._lock: Final = threading.Lock()
        self._readers = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<RingReader of {self.size} bytes>"

    @classmethod
    def accept(cls, fd: int, declared_bytes: int, *, cap_bytes: int) -> Self:
        """Take over a client's descriptor, if it is a sealed memfd of exactly the declared size.

        A sparse giant needs no test of its own: its size passes the cap, or else it is paid for by the client.

        Args:
            fd: The descriptor; becomes the reader's on success, stays the caller's otherwise.
            declared_bytes: Size that the client declared.
            cap_bytes: Greatest ring that this tenant may have.

        Raises:
            DescriptorError: Says what is wrong: type of file, seals, access mode, size.
        """
        if declared_bytes <= 0:
            raise DescriptorError(
                f"{declared_bytes} bytes were declared", field="ring", remedy="declare the ring's true size"
            )
        return cls(fd, check_sealed(fd, field="ring", size=declared_bytes, cap=cap_bytes))

    def read_into(self, target: memoryview, offset: int) -> None:
        """Fill ``target`` from the ring's bytes at ``offset``. Releases the interpreter lock while it copies.

        Raises:
            CallerError: The range leaves the ring.
            DescriptorError: The ring is closed, or the kernel gives no bytes, as when they can not be swapped in.
        """
        self._check(offset, len(target))
        with self._held():
            done = 0
            while done < len(target):
                done += self._read_some([target[done:]], offset + done)

    def read_run(self, targets: Sequence[memoryview], offset: int) -> None:
        """Fill `targets`, at most 1,024, from bytes that lie one behind the other in the ring, by one call.

        Raises:
            CallerError: The range leaves the ring.
            DescriptorError: As `read_into`.
        """
        size = sum(map(len, targets))
        self._check(offset, size)
        with self._held():
            whole = self._read_some(targets, offset) == size
        if not whole:  # a signal may cut any read short
            for target in targets:
                self.read_into(target, offset)
                offset += len(target)

    def _check(self, offset: int, length: int) -> None:
        if offset < 0 or offset + length > self.size:
            raise CallerError(
                f"[{offset}, {offset + length}) leaves a ring of {self.size} bytes",
                field="ring_offset",
                remedy="name a range inside the ring",
            )

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise _unreadable("its connection has ended")
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._closed and not self._readers:
            os.close(self._fd)

    def _read_some(self, targets: Sequence[memoryview], offset: int) -> int:
        try:
            count = os.preadv(self._fd, targets, offset)
        except OSError as error:
            raise _unreadable(error.strerror or str(error)) from error
        if count == 0:
            raise _unreadable("the ring ended before its declared size")
        return count

    def close(self) -> None:
        """Read no more; closing twice is nothing. The ring's memory is the client's."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._close_if_idle()


def _unreadable(why: str) -> DescriptorError:
    return DescriptorError(f"the ring can not be read: {why}", field="ring", remedy="send a new ring and put again")
