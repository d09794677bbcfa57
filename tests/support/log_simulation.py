"""A file system in memory that forgets what was not synced.

What a program sees (`data`, the names) and what the device holds (`durable`, the durable names) are kept apart. A power
cut keeps the second and a random part of the difference: sector by sector, name by name, in no order. A killed process
loses nothing. A sync that fails leaves its sectors clean and unwritten, which is what Linux does.
"""

import errno
import os
from pathlib import Path

SECTOR = 512


class PowerCutError(OSError):
    """The machine is off; nothing can be asked of it any more."""


class Node:
    """One file: what programs read, what the device holds, and which sectors differ for no other reason than time."""

    def __init__(self):
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty = set()
        self.resized = False

    def copy(self):
        """Return an independent file that is equal in every respect."""
        twin = Node()
        twin.data, twin.durable = bytearray(self.data), bytearray(self.durable)
        twin.dirty, twin.resized = set(self.dirty), self.resized
        return twin

    def resize(self, length):
        """Set the length; a longer file reads as zeros."""
        self.resized |= length != len(self.data)
        del self.data[length:]
        self.data.extend(bytes(length - len(self.data)))

    def write(self, data, offset):
        """Change what programs read."""
        self.resize(max(len(self.data), offset + len(data)))
        self.data[offset : offset + len(data)] = data
        self.dirty.update(range(offset // SECTOR, (offset + len(data) - 1) // SECTOR + 1))

    def flush(self, sectors, *, size):
        """Bring some sectors, and perhaps the length, to the device."""
        if size:
            del self.durable[len(self.data) :]
            self.durable.extend(bytes(len(self.data) - len(self.durable)))
        for sector in sectors:
            start, end = sector * SECTOR, min((sector + 1) * SECTOR, len(self.data))
            if start < len(self.durable):
                self.durable[start:end] = self.data[start:end]

    def cut(self, rng):
        """Lose power: keep a random part of what was not synced."""
        size = self.resized and rng.random() < 0.5
        self.flush([sector for sector in sorted(self.dirty) if rng.random() < 0.5], size=size)
        self.data = bytearray(self.durable)
        self.dirty.clear()
        self.resized = False


class SimulatedLogIO:
    """`LogIO` over such files.

    Attributes:
        operations: How many operations were asked for.
        cut_at: Number of the operation at which power goes; 0 for never.
        fail_sync_at: Number of the sync that fails with EIO; 0 for never.
    """

    def __init__(self, boot=1):
        self.boot = boot
        self.files = {}
        self.durable_names = {}
        self.unsynced_names = []
        self.descriptors = {}
        self.locked = set()
        self.operations = self.syncs = 0
        self.cut_at = self.fail_sync_at = 0

    def copy(self):
        """Return an independent file system that is equal in every respect but open descriptors."""
        twin = SimulatedLogIO(self.boot)
        nodes = {id(node): node.copy() for node in (*self.files.values(), *self.durable_names.values())}
        twin.files = {name: nodes[id(node)] for name, node in self.files.items()}
        twin.durable_names = {name: nodes[id(node)] for name, node in self.durable_names.items()}
        twin.unsynced_names = [(operation, name, nodes.get(id(node))) for operation, name, node in self.unsynced_names]
        return twin

    def kill(self):
        """End the process: descriptors and locks go, everything else stays, the boot goes on."""
        self.descriptors.clear()
        self.locked.clear()
        self.cut_at = self.fail_sync_at = 0

    def cut(self, rng):
        """Lose power and start again: a random part of what was not synced is gone, the boot is another."""
        for step in self.unsynced_names:
            if rng.random() < 0.5:
                self._keep_name(*step)
        self.unsynced_names.clear()
        self.files = dict(self.durable_names)
        for node in set(self.files.values()):
            node.cut(rng)
        self.boot += 1
        self.kill()

    def make_directory(self, path):
        """Directories are there as soon as a file is."""
        self._step()

    def open(self, path, *, create=False, read_only=False):
        """Open or create a file."""
        self._step()
        if path not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self.files[path] = Node()
            self.unsynced_names.append(("add", path, self.files[path]))
        fd = max(self.descriptors, default=2) + 1
        self.descriptors[fd] = self.files[path]
        return fd

    def close(self, fd):
        """Forget a descriptor and its lock."""
        self.locked.discard(id(self.descriptors.pop(fd)))

    def size(self, fd):
        """Return the length that programs see."""
        self._step()
        return len(self.descriptors[fd].data)

    def pread(self, fd, length, offset):
        """Read what programs see."""
        self._step()
        return bytes(self.descriptors[fd].data[offset : offset + length])

    def pwrite(self, fd, data, offset):
        """Write; at the moment of the power cut a part of it is on its way."""
        node = self.descriptors[fd]
        if self.cut_at and self.operations + 1 == self.cut_at:
            node.write(bytes(data), offset)
        self._step()
        node.write(bytes(data), offset)
        return len(data)

    def truncate(self, fd, length):
        """Set the length."""
        self._step()
        self.descriptors[fd].resize(length)

    def preallocate(self, fd, length):
        """Make the file at least this long."""
        self._step()
        node = self.descriptors[fd]
        node.resize(max(length, len(node.data)))

    def fdatasync(self, fd):
        """Bring the file to the device, or fail and call it clean."""
        self._step()
        node = self.descriptors[fd]
        self.syncs += 1
        failed = self.syncs == self.fail_sync_at
        if not failed:
            node.flush(sorted(node.dirty), size=True)
        node.dirty.clear()
        node.resized = False
        if failed:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def sync_directory(self, path):
        """Bring the names of one directory to the device."""
        self._step()
        for step in [step for step in self.unsynced_names if Path(step[1]).parent == path]:
            self._keep_name(*step)
            self.unsynced_names.remove(step)

    def rename(self, source, target):
        """Rename for programs; the device learns of both names later."""
        self._step()
        node = self.files.pop(source)
        self.files[target] = node
        if source.parent == target.parent:
            self.unsynced_names.append((source, target, node))
        else:
            self.unsynced_names += [("add", target, node), ("remove", source, node)]

    def link(self, source, target):
        """Add a name for programs."""
        self._step()
        if target in self.files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        self.files[target] = self.files[source]
        self.unsynced_names.append(("add", target, self.files[source]))

    def unlink(self, path):
        """Remove a name for programs."""
        self._step()
        self.unsynced_names.append(("remove", path, self.files.pop(path)))

    def names(self, path):
        """List what programs see."""
        self._step()
        return sorted({name.relative_to(path).parts[0] for name in self.files if name.is_relative_to(path)})

    def lock(self, fd):
        """Take the lock of a file."""
        self._step()
        node = id(self.descriptors[fd])
        if node in self.locked:
            return False
        self.locked.add(node)
        return True

    def boot_id(self):
        """Return the number of this boot."""
        return self.boot.to_bytes(16, "little")

    def _step(self):
        self.operations += 1
        if self.cut_at and self.operations >= self.cut_at:
            raise PowerCutError(errno.EIO, "power is gone")

    def _keep_name(self, operation, name, node):
        """Do to the durable names what `operation` says: add, remove, or (a path) rename from there."""
        if operation == "remove":
            if self.durable_names.get(name) is node:
                del self.durable_names[name]
            return
        if operation != "add" and self.durable_names.get(operation) is node:
            del self.durable_names[operation]
        self.durable_names[name] = node
