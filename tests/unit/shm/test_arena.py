import fcntl
import mmap
import os
import subprocess
import sys

import pytest

from kvledger.arena_header import ArenaHeaderError
from kvledger.errors import CallerError, CapacityError
from kvledger.memfd import DescriptorError
from kvledger.shm import ArenaView, Ring
from kvledger_storage.arena import Arena, ArenaRefusedError
from support.shm import BOOT, KIB, LOG, TENANT, identity, open_descriptors


def test_new_arena_has_all_its_memory_and_says_what_it_is(arena):
    """An arena is populated at birth, zeroed, private to its owner, and carries its identity."""
    facts = os.fstat(arena.fd)
    assert facts.st_blocks * 512 >= arena.header.file_bytes
    assert facts.st_mode & 0o777 == 0o600
    assert bytes(arena.view(0, arena.data_bytes)) == bytes(64 * KIB)
    assert (arena.arena_id, arena.header.identity.tenant, arena.header.identity.kind) == (7, TENANT, 3)


@pytest.mark.parametrize("size", [4096, 1 << 20])
def test_size_of_an_arena_is_sealed(arena, size):
    """Nobody, not even the daemon, can shrink or grow an arena or take the seals off."""
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(arena.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_readers_descriptor_writes_nothing(arena):
    """The descriptor that readers get can not be written, truncated, mapped writable or remapped so later."""
    fd = arena.read_only_fd()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(fd, b"x", 0)
    with pytest.raises(OSError, match="Invalid argument"):
        os.ftruncate(fd, 0)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, arena.header.file_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    view = ArenaView(fd)
    assert view.buffer(0, 8).readonly
    os.close(fd)


def test_reader_sees_bytes_and_generations_as_the_daemon_moves_them(arena):
    """A read-only map shows what the daemon writes afterwards, and the generation of each object's first page."""
    fd = arena.read_only_fd()
    view = ArenaView(fd)
    os.close(fd)
    arena.set_generations([(0, 1, 11), (3, 1, 2**64 - 1)])
    arena.view(3 * 4096, 5)[:] = b"bytes"
    assert bytes(view.buffer(3 * 4096, 5)) == b"bytes"
    assert [view.generation(offset) for offset in (0, 4096, 3 * 4096 + 100)] == [11, 0, 2**64 - 1]
    assert view.is_current(0, 11)
    arena.set_generations([(0, 1, 12)])
    assert not view.is_current(0, 11)


def test_generation_moves_under_a_reader_in_another_process(arena):
    """Another process that holds only the read-only descriptor sees a generation move while it looks."""
    fd = arena.read_only_fd()
    arena.set_generations([(2, 1, 5)])
    program = (
        "import sys, time\nfrom kvledger.shm import ArenaView\n"
        "view = ArenaView(int(sys.argv[1]))\nprint(view.generation(8192), flush=True)\n"
        "end = time.monotonic() + 60\n"
        "while view.is_current(8192, 5) and time.monotonic() < end: time.sleep(0.001)\n"
        "print(view.generation(8192), bytes(view.buffer(8192, 3)).decode())"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", program, str(fd)], stdout=subprocess.PIPE, pass_fds=[fd], text=True
    )
    assert reader.stdout.readline() == "5\n"
    arena.view(8192, 3)[:] = b"new"
    arena.set_generations([(2, 1, 6)])
    assert reader.communicate(timeout=90)[0] == "6 new\n"
    os.close(fd)


def test_generation_zero_is_never_given(arena):
    """Zero stands for memory that was taken away, so no object may carry it."""
    with pytest.raises(ValueError, match="count from 1"):
        arena.set_generations([(0, 1, 0)])


@pytest.mark.hostile("AR01")
def test_rewritten_table_leaves_no_old_generation(arena):
    """At adoption live objects get their logged generation and every other page a fresh one, whatever stood there."""
    arena.set_generations((page, 1, 900 + page) for page in range(16))
    arena.rewrite_table([(0, 1, 41), (5, 1, 42)], free=10**12)
    view = ArenaView(arena.fd)
    table = [view.generation(page * 4096) for page in range(16)]
    assert table[0] == 41
    assert table[5] == 42
    assert {generation for page, generation in enumerate(table) if page not in {0, 5}} == {10**12}


def test_arena_outlives_its_maker_and_is_adopted(arena):
    """A descriptor that somebody held carries bytes and identity into the next incarnation."""
    arena.view(4096, 4)[:] = b"kept"
    held = os.dup(arena.fd)
    arena.close()
    adopted = Arena.adopt(held, LOG, BOOT)
    assert adopted.arena_id == 7
    assert bytes(adopted.view(4096, 4)) == b"kept"
    adopted.close()


def _plain_file(tmp_path, arena):
    path = tmp_path / "file"
    path.write_bytes(os.pread(arena.fd, arena.header.file_bytes, 0))
    return os.open(path, os.O_RDWR)


def _unsealed(tmp_path, arena):
    fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.write(fd, os.pread(arena.fd, arena.header.file_bytes, 0))
    return fd


def _longer(tmp_path, arena):
    fd = _unsealed(tmp_path, arena)
    os.ftruncate(fd, arena.header.file_bytes + 4096)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


def _empty(tmp_path, arena):
    fd = os.memfd_create("empty", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


def _read_only(tmp_path, arena):
    return arena.read_only_fd()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (_plain_file, DescriptorError, "not a memfd"),
        (_unsealed, DescriptorError, "change its size"),
        (_longer, ArenaHeaderError, "arena.size"),
        (_empty, ArenaHeaderError, "arena.size"),
        (_read_only, ArenaRefusedError, "read-only"),
    ],
)
def test_wrong_regions_are_refused_by_name(tmp_path, arena, make, error, words):
    """What the store returns is adopted only if it is a sealed, writable memfd of the size that its header says."""
    before = open_descriptors()
    fd = make(tmp_path, arena)
    with pytest.raises(error, match=words):
        Arena.adopt(fd, LOG, BOOT)
    os.close(fd)
    assert open_descriptors() == before


def _pipe(tmp_path, arena):
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def _ring(tmp_path, arena):
    ring = Ring(8192)
    fd = os.dup(ring.fd)
    ring.close()
    return fd


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (_plain_file, DescriptorError),
        (_unsealed, DescriptorError),
        (_pipe, DescriptorError),
        (_empty, DescriptorError),
        (_longer, ArenaHeaderError),
        (_ring, ArenaHeaderError),
    ],
)
def test_client_maps_nothing_that_is_no_arena(tmp_path, arena, make, error):
    """A client checks what it is sent as the daemon does, so a page that could vanish is never mapped."""
    fd = make(tmp_path, arena)
    before = open_descriptors()
    with pytest.raises(error):
        ArenaView(fd)
    assert open_descriptors() == before
    os.close(fd)


@pytest.mark.hostile("AR01")
@pytest.mark.parametrize(("byte", "field"), [(0, "magic"), (8, "version"), (10, "crc"), (16, "crc"), (100, "crc")])
def test_overwritten_header_is_refused(arena, byte, field):
    """A client of the daemon's own uid that scribbles on the header turns the arena into a miss, nothing worse."""
    os.pwrite(arena.fd, bytes([os.pread(arena.fd, 1, byte)[0] ^ 0xFF]), byte)
    with pytest.raises(ArenaHeaderError, match=f"arena.{field}"):
        Arena.adopt(arena.fd, LOG, BOOT)


def test_arena_of_another_log_or_boot_is_refused(arena):
    """An arena belongs to one log and one boot, and the refusal says which of them differs."""
    with pytest.raises(ArenaRefusedError, match=r"arena\.log_id"):
        Arena.adopt(arena.fd, bytes(16), BOOT)
    with pytest.raises(ArenaRefusedError, match=r"arena\.boot_id"):
        Arena.adopt(arena.fd, LOG, bytes(16))


def test_memory_that_is_not_there_is_an_error_and_leaks_nothing():
    """An arena larger than the address space is refused as a matter of capacity, and its descriptor is closed."""
    before = open_descriptors()
    with pytest.raises(CapacityError):
        Arena.create(identity(), 1 << 60)
    assert open_descriptors() == before


def test_ranges_outside_the_data_area_are_never_reached(arena):
    """Neither the daemon's nor the reader's side hands out a byte beyond the data area, or before it."""
    view = ArenaView(arena.fd)
    for offset, length in ((-1, 4), (0, 64 * KIB + 1), (64 * KIB, 1), (4096, -4)):
        with pytest.raises(ValueError, match="leaves"):
            arena.view(offset, length)
        with pytest.raises(CallerError, match="leaves"):
            view.buffer(offset, length)


def test_arenas_and_views_give_all_descriptors_back():
    """Making, reading and closing arenas leaves no descriptor behind, also while a buffer is still held."""
    before = open_descriptors()
    for number in range(1, 20):
        arena = Arena.create(identity(arena_id=number), 4096)
        fd = arena.read_only_fd()
        view = ArenaView(fd)
        os.close(fd)
        assert bytes(view.buffer(0, 4)) == bytes(4)
        view.close()
        arena.close()
    assert open_descriptors() == before


def test_forked_child_gets_an_error_where_a_touch_would_kill_it(arena):
    """Maps are not inherited, so a view used in a forked child raises instead of faulting."""
    program = (
        "import os, sys\nfrom kvledger.errors import CallerError\nfrom kvledger.shm import ArenaView, Ring\n"
        "view, ring = ArenaView(int(sys.argv[1])), Ring(8192)\npart = ring.take(10)\n"
        "if os.fork():\n    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "refused = 0\n"
        "for use in (lambda: view.buffer(0, 8), lambda: view.generation(0), lambda: ring.buffer(part)):\n"
        "    try:\n        use()\n    except CallerError:\n        refused += 1\n"
        "os._exit(40 + refused)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(arena.fd)], pass_fds=[arena.fd], check=False)
    assert done.returncode == 43


@pytest.mark.parametrize(("first", "count"), [(0, 3), (2, 1), (3, 4), (5, 1), (2, 4), (0, 16)])
def test_a_handle_is_stale_whatever_overlaps_it(arena, first, count):
    """A new object that touches any page of an older one makes its handle stale, wherever the new one begins."""
    fd = arena.read_only_fd()
    view = ArenaView(fd)
    os.close(fd)
    arena.set_generations([(2, 4, 77)])
    assert view.is_current(2 * 4096, 77, 4 * 4096)

    arena.set_generations([(first, count, 78)])

    assert not view.is_current(2 * 4096, 77, 4 * 4096)


def test_an_arena_that_changes_kind_is_zeroed_under_stale_handles(arena):
    """Its bytes are zeros, no generation fits that was given out, and it is adopted as one of the new kind only."""
    fd = arena.read_only_fd()
    view = ArenaView(fd)
    os.close(fd)
    arena.set_generations([(0, 2, 11), (5, 1, 12)])
    arena.view(0, arena.data_bytes)[:] = b"x" * arena.data_bytes
    arena.rekind(2, 99)
    assert bytes(view.buffer(0, arena.data_bytes)) == bytes(arena.data_bytes)
    assert {view.generation(offset) for offset in range(0, arena.data_bytes, 4096)} == {99}
    adopted = Arena.adopt(os.dup(arena.fd), LOG, BOOT)
    assert (adopted.header.identity.kind, adopted.arena_id) == (2, arena.arena_id)
    adopted.close()
