import errno
import fcntl
import mmap
import os
import resource
from pathlib import Path

import pytest

from kvledger import memfd
from kvledger.errors import CapacityError
from kvledger.memfd import advise_huge, check_sealed, create_sealed, has_shared_huge_pages, map_shared, populate
from kvledger.shm import Ring
from support.shm import open_descriptors


class _OldKernel:
    """A map on a kernel that has no MADV_POPULATE_WRITE."""

    def __init__(self, area):
        self._area = area

    def madvise(self, option, start, length):
        """Refuse the unknown advice."""
        raise OSError(errno.EINVAL, "Invalid argument")

    def __setitem__(self, at, value):
        self._area[at] = value


def test_old_kernel_populates_by_allocation():
    """Without MADV_POPULATE_WRITE every page is allocated all the same, and reads as zeros."""
    fd = create_sealed("x", 64 << 10)
    with mmap.mmap(fd, 64 << 10) as area:
        populate(_OldKernel(area), fd, 4096, 32 << 10)
        assert os.fstat(fd).st_blocks * 512 >= 32 << 10
        assert area[:] == bytes(64 << 10)
    os.close(fd)


@pytest.mark.parametrize("writable", [True, False])
def test_no_map_is_inherited_by_a_child(writable):
    """The kernel's own flags of a map say that a fork does not copy it."""
    fd = create_sealed("kvledger-inherited", 4096)
    area = map_shared(fd, 4096, writable=writable)
    _, _, entry = Path("/proc/self/smaps").read_text(encoding="utf-8").partition("memfd:kvledger-inherited")
    flags = next(line for line in entry.splitlines() if line.startswith("VmFlags:")).split()
    assert "dc" in flags
    assert ("wr" in flags) == writable
    area.close()
    os.close(fd)


def test_kernel_without_noexec_seal_makes_the_same_memfd(monkeypatch):
    """Where the kernel does not know MFD_NOEXEC_SEAL, the memfd is made without it and is sealed as ever."""
    make = os.memfd_create

    def old(name, flags):
        if flags & 8:
            raise OSError(errno.EINVAL, "Invalid argument")
        return make(name, flags)

    monkeypatch.setattr(os, "memfd_create", old)
    fd = create_sealed("x", 4096)
    assert check_sealed(fd, field="x", size=4096) == 4096
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.close(fd)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
def test_kernel_that_gives_no_descriptor_is_a_matter_of_capacity(monkeypatch, number):
    """A limit of descriptors that is reached, or a host that forbids memfds, is a typed error with a remedy."""

    def refuse(name, flags):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(CapacityError, match="LimitNOFILE"):
        create_sealed("x", 4096)


def test_size_beyond_the_file_limit_is_refused_and_closed():
    """A memfd larger than the process's limit of file sizes is a typed error, and its descriptor is closed."""
    before = open_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(CapacityError, match="ask for less"):
            create_sealed("x", 8192)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert open_descriptors() == before


def test_ring_larger_than_the_address_space_is_refused_and_closed():
    """A ring that can not be mapped is a typed error, and its descriptor is closed."""
    before = open_descriptors()
    with pytest.raises(CapacityError, match="can not be mapped"):
        Ring(1 << 60)
    assert open_descriptors() == before


def test_memory_that_runs_out_is_an_error_and_no_signal():
    """Pages that the kernel does not give become a typed error where a touch would have been a SIGBUS."""
    fd = create_sealed("x", 8192)
    with mmap.mmap(fd, 8192) as area, pytest.raises(CapacityError, match="memory limit"):
        populate(_Exhausted(area), fd, 0, 8192)
    os.close(fd)


class _Exhausted(_OldKernel):
    """A map for which no page is left."""

    def madvise(self, option, start, length):
        """Give no memory."""
        raise OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.mark.parametrize(
    ("choices", "given"),
    [
        ("always within_size [advise] never deny force", True),
        ("[always] within_size advise never deny force", True),
        ("always within_size advise [never] deny force", False),
        ("always within_size advise never [deny] force", False),
        (None, False),
    ],
)
def test_huge_pages_are_there_where_the_kernel_says_so(choices, given, tmp_path, monkeypatch):
    """What counts is the choice in brackets; a kernel without the file has none."""
    if choices is not None:
        (tmp_path / "shmem_enabled").write_text(choices)
    monkeypatch.setattr(memfd, "_SHMEM_HUGE", tmp_path / "shmem_enabled")
    assert has_shared_huge_pages() is given


def test_a_kernel_without_huge_pages_changes_nothing():
    """Where the advice is refused the memory is as usable as before."""

    class Refusing(mmap.mmap):
        def madvise(self, *given):
            raise OSError(errno.EINVAL, "Invalid argument")

    area = Refusing(-1, 8192)
    advise_huge(area)
    area[:4] = b"here"
    assert area[:4] == b"here"
