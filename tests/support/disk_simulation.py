"""A disk in memory that forgets at a power cut what was not synced: whole writes, single sectors, sizes and names.

It is harsher than file systems are: each sector of 512 bytes that was written since the last sync is kept or lost on
its own, a lost one shows what was there before, also where the file had been cut meanwhile. It also refuses direct
transfers that are not aligned in offset, length and address, as devices do.
"""

import errno
import os
from pathlib import PurePath

from kvledger_storage.disk import FileStat
from kvledger_storage.disk.pages import PAGE, is_aligned

SECTOR = 512


class PowerCut(Exception):  # noqa: N818 - it is no error of anything
    """The machine lost power; every call from here on raises this."""


class _File:
    def __init__(self, durable=b""):
        self.durable = bytes(durable)
        self.now = bytearray(durable)
        self.unsynced = set()

    def write(self, offset, data):
        self.resize(max(len(self.now), offset + len(data)))
        self.now[offset : offset + len(data)] = data
        self.unsynced.update(range(offset // SECTOR, -(-(offset + len(data)) // SECTOR)))

    def resize(self, size):
        if size < len(self.now):
            del self.now[size:]
        else:
            grown = range(len(self.now) // SECTOR, -(-size // SECTOR))
            self.now.extend(bytes(size - len(self.now)))
            self.unsynced.update(grown)

    def sync(self):
        self.durable = bytes(self.now)
        self.unsynced.clear()

    def after_power_cut(self, rng):
        size = rng.choice([len(self.durable), len(self.now)])
        result = bytearray(self.now[:size].ljust(size, b"\0"))
        for sector in self.unsynced:
            if rng.random() < 0.5:
                part = slice(sector * SECTOR, (sector + 1) * SECTOR)
                result[part] = self.durable[part].ljust(SECTOR, b"\0")
        return _File(result[:size])


def _folder(name):
    return str(PurePath(name).parent)


class SimulatedDisk:
    """The seam over a disk in memory.

    Attributes:
        calls: Calls made so far.
        cut_at: Number of the call at which power is lost, before it does anything; 0 means never.
    """

    def __init__(self):
        self.calls = 0
        self.cut_at = 0
        self.names = {}
        self.durable_names = {}
        self.open_files = {}
        self.next_fd = 3

    def power_cut(self, rng):
        """Lose what was not synced, as `rng` has it, and come up again."""
        names = {}
        for path in sorted(self.names.keys() | self.durable_names.keys()):
            file = rng.choice([self.names.get(path), self.durable_names.get(path)])
            if file is not None:
                names[path] = file.after_power_cut(rng)
        self.names = names
        self.durable_names = dict(names)
        self.open_files = {}
        self.cut_at = 0

    def _step(self):
        self.calls += 1
        if self.cut_at and self.calls >= self.cut_at:
            raise PowerCut

    def open(self, path, flags, mode=0o600):
        """Open or make a file."""
        self._step()
        if path in self.names and flags & os.O_EXCL:
            raise OSError(errno.EEXIST, "File exists")
        if path not in self.names and not flags & os.O_CREAT:
            raise OSError(errno.ENOENT, "No such file")
        file = self.names.setdefault(path, _File())
        self.next_fd += 1
        self.open_files[self.next_fd] = (file, bool(flags & os.O_DIRECT))
        return self.next_fd

    def close(self, fd):
        """Forget a descriptor."""
        self._step()
        del self.open_files[fd]

    def fstat(self, fd):
        """Every file is a regular one."""
        self._step()
        return FileStat(regular=True, size=len(self.open_files[fd][0].now))

    def _transfer(self, fd, buffers, offset):
        self._step()
        file, direct = self.open_files[fd]
        if direct and (offset % PAGE or any(len(view) % PAGE or not is_aligned(view) for view in buffers)):
            raise OSError(errno.EINVAL, "Invalid argument")
        return file

    def pwrite(self, fd, buffers, offset):
        """Write everything."""
        file = self._transfer(fd, buffers, offset)
        data = b"".join(buffers)
        file.write(offset, data)
        return len(data)

    def preadv(self, fd, buffers, offset):
        """Read up to the end of the file."""
        file = self._transfer(fd, buffers, offset)
        start = offset
        for view in buffers:
            part = file.now[offset : offset + len(view)]
            view[: len(part)] = part
            offset += len(part)
        return offset - start

    def fdatasync(self, fd):
        """Make a file's bytes and size durable."""
        self._step()
        self.open_files[fd][0].sync()

    def sync_directory(self, path):
        """Make the names of a directory durable."""
        self._step()
        inside = {name: file for name, file in self.names.items() if _folder(name) == path}
        outside = {name: file for name, file in self.durable_names.items() if _folder(name) != path}
        self.durable_names = outside | inside

    def preallocate(self, fd, offset, length):
        """Make the file large enough."""
        self._step()
        file = self.open_files[fd][0]
        file.resize(max(len(file.now), offset + length))

    def truncate(self, fd, length):
        """Set the size of a file."""
        self._step()
        self.open_files[fd][0].resize(length)

    def unlink(self, path):
        """Remove a name."""
        self._step()
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file")
        del self.names[path]

    def mkdir(self, path):
        """Directories are always there."""
        self._step()

    def listdir(self, path):
        """Return the names of a directory."""
        self._step()
        return [PurePath(name).name for name in self.names if _folder(name) == path]
