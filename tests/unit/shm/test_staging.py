import fcntl
import os
import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.errors import CallerError
from kvledger.memfd import DescriptorError
from kvledger.ranges import FreeRanges
from kvledger.shm import Ring, RingFullError, RingRange
from kvledger_storage.ring import RingReader
from support.shm import KIB, open_descriptors

MIB = 1 << 20


def sealed(size, seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW):
    """Return a memfd with these seals, as a client would make it by hand."""
    fd = os.memfd_create("ring", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def test_what_a_client_writes_the_daemon_reads():
    """A range taken and filled by the client is read from its descriptor at the same offset."""
    with Ring(64 * KIB) as ring:
        first, second = ring.take(5000), ring.take(10)
        ring.buffer(first)[:] = b"a" * 5000
        ring.buffer(second)[:] = b"0123456789"
        reader = RingReader.accept(os.dup(ring.fd), ring.size, cap_bytes=MIB)
        target = bytearray(10)
        reader.read_into(memoryview(target), second.offset)
        assert bytes(target) == b"0123456789"
        reader.close()


def test_read_only_descriptor_of_a_ring_is_enough():
    """A client that does not want its ring written may send a descriptor opened for reading."""
    with Ring(8 * KIB) as ring:
        fd = os.open(f"/proc/self/fd/{ring.fd}", os.O_RDONLY)
        RingReader.accept(fd, ring.size, cap_bytes=MIB).close()


def test_ranges_never_overlap_and_come_back():
    """Taken ranges are disjoint and page aligned, a full ring says so, and what is given back can be taken again."""
    ring = Ring(16 * KIB)
    parts = [ring.take(length) for length in (1, 4096, 4097)]
    assert [part.offset for part in parts] == [0, 4096, 8192]
    with pytest.raises(RingFullError, match="0 free"):
        ring.take(1)
    ring.give_back(parts[1])
    with pytest.raises(RingFullError, match="at most 4096 together"):
        ring.take(4097)
    assert ring.take(4000).offset == 4096
    ring.close()


@pytest.mark.parametrize("length", [0, -1, 16 * KIB + 1])
def test_range_that_could_never_fit_is_the_callers_fault(length):
    """Asking for nothing, or for more than the whole ring, is refused at once and not as a full ring."""
    with Ring(16 * KIB) as ring, pytest.raises(CallerError, match="never fit"):
        ring.take(length)


def test_range_is_given_back_once():
    """Giving back a range twice, or one that was never taken, is an error and frees nothing of others."""
    with Ring(16 * KIB) as ring:
        part, other = ring.take(4096), ring.take(4096)
        ring.give_back(part)
        for wrong in (part, RingRange(other.offset, 1), RingRange(8192, 4096)):
            with pytest.raises(CallerError, match="not taken"):
                ring.give_back(wrong)
        assert ring.take(12 * KIB - 4096).offset == 8192


def test_closed_ring_leaves_nothing_open():
    """Closing a ring, once or twice, gives its descriptors back; a buffer that is still held stays readable."""
    before = open_descriptors()
    ring = Ring(8 * KIB)
    ring.close()
    ring.close()
    assert open_descriptors() == before
    ring = Ring(8 * KIB)
    held = ring.buffer(ring.take(4))
    held[:] = b"held"
    ring.close()
    assert bytes(held) == b"held"


def test_threads_share_a_ring():
    """Eight threads that take and give back at once never hold the same bytes."""
    ring = Ring(128 * KIB)
    clashes = []

    def work(mark):
        for _ in range(200):
            part = ring.take(3000)
            view = ring.buffer(part)
            view[:] = mark * 3000
            if bytes(view) != mark * 3000:
                clashes.append(part)
            ring.give_back(part)

    threads = [threading.Thread(target=work, args=(bytes([number]),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert ring.take(128 * KIB).offset == 0
    ring.close()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(min_value=-8, max_value=30), max_size=60))
def test_free_ranges_agree_with_a_plain_bitmap(steps):
    """Positive steps take, negative ones give back the n-th oldest; first fit, joining and totals match a bitmap."""
    free, bitmap, taken = FreeRanges(100), [True] * 100, []
    for step in steps:
        if step > 0:
            starts = (at for at in range(101 - step) if all(bitmap[at : at + step]))
            expected = next(starts, None)
            assert free.take(step) == expected
            if expected is not None:
                bitmap[expected : expected + step] = [False] * step
                taken.append((expected, step))
        elif taken:
            offset, length = taken.pop(-step % len(taken))
            free.give_back(offset, length)
            bitmap[offset : offset + length] = [True] * length
        runs = "".join("x" if here else " " for here in bitmap).split()
        assert (free.total, free.longest) == (sum(bitmap), max(map(len, runs), default=0))


def _socket(tmp_path):
    left, right = socket.socketpair()
    right.close()
    return left.detach()


def _directory(tmp_path):
    return os.open(tmp_path, os.O_RDONLY)


def _pipe(tmp_path):
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def _device(tmp_path):
    return os.open("/dev/zero", os.O_RDWR)


def _o_path(tmp_path):
    fd = sealed(8 * KIB)
    path = os.open(f"/proc/self/fd/{fd}", os.O_PATH)
    os.close(fd)
    return path


def _log_file(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(bytes(8 * KIB))
    return os.open(path, os.O_RDWR)


def _write_only(tmp_path):
    fd = sealed(8 * KIB)
    other = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
    os.close(fd)
    return other


def _eventfd(tmp_path):
    return os.eventfd(0)


HOSTILE = [
    (_socket, "not a memfd"),
    (_directory, "not a memfd"),
    (_pipe, "not a memfd"),
    (_device, "not a memfd"),
    (_o_path, "O_PATH"),
    (_log_file, "not a memfd"),
    (_write_only, "write-only"),
    (_eventfd, "not a memfd"),
    (lambda _: sealed(8 * KIB, 0), "change its size"),
    (lambda _: sealed(8 * KIB, fcntl.F_SEAL_SHRINK), "change its size"),
    (lambda _: sealed(8 * KIB, fcntl.F_SEAL_GROW), "change its size"),
    (lambda _: sealed(4 * KIB), "has 4096 bytes where 8192 were declared"),
    (lambda _: sealed(1 << 40), "were declared"),
    (lambda _: sealed(0), "were declared"),
]


@pytest.mark.hostile("DE02", "DE03", "DE05")
@pytest.mark.parametrize(("make", "words"), HOSTILE)
def test_hostile_descriptor_is_refused_by_name(tmp_path, make, words):
    """Everything that is not a sealed memfd of the declared size is refused with its reason, unread and not kept."""
    before = open_descriptors()
    fd = make(tmp_path)
    with pytest.raises(DescriptorError, match=words) as refusal:
        RingReader.accept(fd, 8 * KIB, cap_bytes=MIB)
    assert refusal.value.field == "ring"
    os.close(fd)
    assert open_descriptors() == before


@pytest.mark.hostile("DE04")
def test_sparse_giant_of_the_declared_size_passes_no_cap():
    """One TiB that was declared honestly is still more than a tenant may stage."""
    fd = sealed(1 << 40)
    with pytest.raises(DescriptorError, match="the cap is"):
        RingReader.accept(fd, 1 << 40, cap_bytes=MIB)
    os.close(fd)


def test_closed_descriptor_and_no_size_are_refused():
    """A number that is no open descriptor and a declared size of nothing are typed errors too."""
    with pytest.raises(DescriptorError, match="not open"):
        RingReader.accept(10**6, 8 * KIB, cap_bytes=MIB)
    with pytest.raises(DescriptorError, match="0 bytes were declared"):
        RingReader.accept(0, 0, cap_bytes=MIB)


@pytest.mark.hostile("DE03")
def test_ring_can_not_be_shrunk_under_the_reader():
    """Once accepted, a ring keeps its size, whatever the client tries."""
    with Ring(8 * KIB) as ring, pytest.raises(PermissionError):
        os.ftruncate(ring.fd, 0)


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (8 * KIB, 1), (4096, 4097), (2**63 - 1, 1)])
def test_reads_outside_the_ring_are_refused(offset, length):
    """A put that names bytes beyond the ring is the client's fault and touches no slot."""
    reader = RingReader.accept(sealed(8 * KIB), 8 * KIB, cap_bytes=MIB)
    target = bytearray(b"\xcc" * length)
    with pytest.raises(CallerError, match="leaves a ring"):
        reader.read_into(memoryview(target), offset)
    assert target == b"\xcc" * length
    reader.close()


def test_ring_closed_under_a_worker_is_read_to_the_end():
    """A connection that ends during a copy neither stops the copy nor gives its descriptor's number away."""
    before = open_descriptors()
    reader = RingReader.accept(sealed(8 * KIB), 8 * KIB, cap_bytes=MIB)
    with reader._held():  # as a worker in the middle of a copy
        reader.close()
        assert open_descriptors() == before + 1
        with pytest.raises(DescriptorError, match="connection has ended"):
            reader.read_into(memoryview(bytearray(1)), 0)
    assert open_descriptors() == before
    reader.close()


def test_dead_clients_ring_still_reads():
    """A client that is killed after its put was taken does not fault the worker that copies."""
    program = (
        "import os, sys, socket\nfrom kvledgerd.keeper.messages import send\nfrom kvledger.shm import Ring\n"
        "ring = Ring(8192)\nring.buffer(ring.take(4))[:] = b'last'\n"
        "send(socket.socket(fileno=int(sys.argv[1])), b'x', [ring.fd])\nos.kill(os.getpid(), 9)"
    )
    ours, theirs = socket.socketpair()
    done = subprocess.run(
        [sys.executable, "-c", program, str(theirs.fileno())], pass_fds=[theirs.fileno()], check=False
    )
    assert done.returncode == -9
    _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
    reader = RingReader.accept(fd, 8 * KIB, cap_bytes=MIB)
    target = bytearray(4)
    reader.read_into(memoryview(target), 0)
    assert target == b"last"
    reader.close()
    ours.close()
    theirs.close()
