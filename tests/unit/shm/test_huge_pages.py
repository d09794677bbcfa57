"""Shared memory that moves into huge pages."""

from __future__ import annotations

import ctypes
import mmap
import os
import queue
import threading
from pathlib import Path

import pytest

from kvledger import huge_pages
from kvledger.huge_pages import collapse
from kvledger.memfd import HUGE_BYTES, create_sealed, map_shared, populate
from kvledger.shm import Ring
from support.shm import open_descriptors


def huge_bytes(fd, size):
    """Return how many of the first bytes of a memfd are mapped by huge pages, in a map that begins where these can."""
    libc = huge_pages._libc
    base = libc.mmap(None, size + HUGE_BYTES, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    start = -(-base // HUGE_BYTES) * HUGE_BYTES
    flags = mmap.MAP_SHARED | huge_pages._MAP_FIXED
    assert libc.mmap(start, size, mmap.PROT_READ, flags, fd, 0) == start
    for at in range(start, start + size, HUGE_BYTES):
        ctypes.string_at(at, 1)  # a map holds what was touched
    entry = Path("/proc/self/smaps").read_text(encoding="utf-8").partition(f"\n{start:x}-")[2]
    libc.munmap(base, size + HUGE_BYTES)
    return int(entry.partition("ShmemPmdMapped:")[2].split()[0]) << 10


@pytest.fixture
def memory():
    """Return the descriptor of four huge pages and a bit, whose small pages are there."""
    size = 4 * HUGE_BYTES + 8192
    fd = create_sealed("kvledger-test", size)
    area = map_shared(fd, size, writable=True)
    populate(area, fd, 0, size)
    yield fd, area
    area.close()
    os.close(fd)


def test_bytes_stay_where_they_were(memory):
    """What was written before is read after, and a map that was there before goes on reading and writing."""
    fd, area = memory
    area[:] = bytes(range(256)) * (len(area) // 256)
    collapse(fd, len(area))

    assert os.pread(fd, len(area), 0) == bytes(range(256)) * (len(area) // 256)
    area[HUGE_BYTES : HUGE_BYTES + 4] = b"next"
    assert os.pread(fd, 4, HUGE_BYTES) == b"next"


def test_pages_become_huge_where_the_kernel_can(memory):
    """True means that all whole huge pages of the range are huge now, whatever `shmem_enabled` says."""
    fd, area = memory
    if not collapse(fd, len(area)):
        pytest.skip("this kernel gives no huge pages: it is older than 6.1, forbids them, or has none left")
    assert huge_bytes(fd, 4 * HUGE_BYTES) == 4 * HUGE_BYTES


def test_what_can_not_be_huge_stays_small(memory):
    """Less than a huge page is left alone, and so is memory that may not be written or is no memory at all."""
    fd, area = memory
    assert not collapse(fd, HUGE_BYTES - 1)
    nothing = os.open(os.devnull, os.O_RDWR)
    assert not collapse(nothing, len(area))
    os.close(nothing)
    read_only = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    assert not collapse(read_only, len(area))
    os.close(read_only)


def test_a_ring_becomes_huge_once_it_was_used_over(monkeypatch):
    """Pages in use move when as many bytes went through as the ring has; more of them once more are in use."""
    asked = queue.SimpleQueue()
    monkeypatch.setattr("kvledger.huge_pages.collapse", lambda _, length: asked.put(length))
    with Ring(4 * HUGE_BYTES) as ring:
        for _ in range(12):
            ring.give_back(ring.take(HUGE_BYTES))
        assert asked.get(timeout=60) == HUGE_BYTES

        ring.take(3 * HUGE_BYTES)
        ring.take(HUGE_BYTES)
        assert asked.get(timeout=60) == 4 * HUGE_BYTES
    for thread in threading.enumerate():
        if thread.name == "kvledger-ring":
            thread.join()  # it closes its descriptor last, and the next test counts these
    assert asked.empty()


@pytest.mark.parametrize("lacks", ["descriptors", "threads"])
def test_a_ring_goes_on_where_nothing_is_left_to_make_it_huge(monkeypatch, lacks):
    """A process that may have no further descriptor or thread gets its ranges as before, and loses no descriptor."""

    def refuse(_):
        raise OSError if lacks == "descriptors" else RuntimeError("can't start new thread")

    with Ring(2 * HUGE_BYTES) as ring:
        descriptors = open_descriptors()
        monkeypatch.setattr(*(("os.dup", refuse) if lacks == "descriptors" else ("threading.Thread.start", refuse)))
        ring.give_back(ring.take(2 * HUGE_BYTES))
        assert ring.take(2 * HUGE_BYTES).offset == 0
        assert open_descriptors() == descriptors
