"""What the processes of a cache hold, as the kernel tells it: their own memory, descriptors, shared memory."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from support.descriptors import open_files

__all__ = ["Held", "held_by", "own_bytes", "parent_of", "size_of"]

_KIB = 1024
_BLOCK = 512


class Held(NamedTuple):
    """What some processes hold together.

    Attributes:
        rss_bytes: Memory of their own; shared memory does not count.
        descriptors: Open descriptors other than memfds.
        memfds: Memfds, each once, whoever holds it.
        shm_bytes: Memory of these.
    """

    rss_bytes: int
    descriptors: int
    memfds: int
    shm_bytes: int


def held_by(pids: list[int]) -> Held:
    """Measure processes, which must be alive and one's own."""
    memory: dict[int, int] = {}
    others = 0
    for pid in pids:
        for entry, target in open_files(pid):
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # closed while it was looked at
            if target.startswith("/memfd:"):
                memory[status.st_ino] = status.st_blocks * _BLOCK
            else:
                others += 1
    return Held(sum(map(own_bytes, pids)), others, len(memory), sum(memory.values()))


def own_bytes(pid: int) -> int:
    """Return the bytes of memory that a process has for itself, shared memory left out."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * _KIB for line in lines if line.startswith("RssAnon:"))


def parent_of(pid: int) -> int:
    """Return the process id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[1])


def size_of(directory: Path) -> int:
    """Return the bytes of the files below a directory."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # removed while it was looked at
    return total
