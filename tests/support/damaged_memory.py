"""Memory changed behind a daemon's back, as a fault of the machine would."""

import os

from support.descriptors import open_files


def damage(pid: int, marker: bytes) -> int:
    """Change a byte behind `marker` in whichever arena holds it, as a process of the daemon's uid could."""
    changed = 0
    for link, target in open_files(pid):
        if "memfd" not in target:
            continue
        try:
            fd = os.open(link, os.O_RDWR)
        except OSError:
            continue
        at = os.pread(fd, os.fstat(fd).st_size, 0).find(marker)
        if at >= 0:
            changed += os.pwrite(fd, b"!", at)
        os.close(fd)
    return changed
