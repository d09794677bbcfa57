"""Every way in which a log is damaged by a disk or by a hand: on a copy of a data directory, each by its name.

The log that they are for has several live segments, several archived ones, and a snapshot.
"""

from __future__ import annotations

import shutil
import struct

from crc32c import crc32c

from kvledger_storage.log import EventLog

DAMAGES = {}


def damage(function):
    """Put a function that damages a data directory into the table."""
    DAMAGES[function.__name__] = function
    return function


def segments(data):
    """Return the paths of the live segments, oldest first."""
    return sorted((data / "log").glob("*.seg"))


def archived(data):
    """Return the paths of the archived segments, oldest first."""
    return sorted((data / "log/archive").glob("*.seg"))


def flip(path, at=None):
    """Flip a bit of a file: in the middle of what is not zero, or so many bytes before the end of that."""
    content = bytearray(path.read_bytes())
    used = len(bytes(content).rstrip(b"\0"))
    content[used // 2 if at is None else used - at] ^= 1
    path.write_bytes(content)


def tear(data):
    """Put zeros over the last bytes of the log."""
    path = segments(data)[-1]
    content = path.read_bytes()
    used = len(content.rstrip(b"\0"))
    path.write_bytes(content[: used - 9].ljust(len(content), b"\0"))


@damage
def torn_tail(data):
    """The last frame is torn, and nothing says that it was synced."""
    tear(data)
    (data / "log/mark").unlink()


@damage
def cut_tail(data):
    """The end of the last frame is gone, though the mark says that it was synced."""
    tear(data)


@damage
def shortened(data):
    """The last segment ends in the middle of its last frame."""
    path = segments(data)[-1]
    path.write_bytes(path.read_bytes().rstrip(b"\0")[:-9])


@damage
def flipped_tail(data):
    """A bit of the last frame is another."""
    flip(segments(data)[-1], 3)


@damage
def flipped_sealed(data):
    """A bit in the first live segment is another."""
    flip(segments(data)[0])


@damage
def missing_first(data):
    """The oldest segment of all is gone."""
    archived(data)[0].unlink()


@damage
def missing_live(data):
    """The first live segment is gone."""
    segments(data)[0].unlink()


@damage
def missing_middle(data):
    """A live segment is gone, others stand before and behind it."""
    segments(data)[1].unlink()


@damage
def missing_last(data):
    """The last segment is gone."""
    segments(data)[-1].unlink()


@damage
def swapped(data):
    """Two segments bear each other's names."""
    one, other = segments(data)[:2]
    one.rename(data / "between")
    other.rename(one)
    (data / "between").rename(other)


@damage
def foreign(data):
    """A segment is one of another log."""
    with EventLog.open(data / "other", segment_bytes=4096):
        pass
    (data / "other" / f"{1:020d}.seg").replace(segments(data)[1])
    shutil.rmtree(data / "other")


@damage
def emptied(data):
    """A segment is there and has no bytes."""
    segments(data)[1].write_bytes(b"")


@damage
def no_id(data):
    """The id is gone."""
    (data / "log/id").unlink()


@damage
def flipped_id(data):
    """A bit of the id is another."""
    flip(data / "log/id")


@damage
def flipped_begin(data):
    """A bit of the file that says where the log begins is another."""
    flip(data / "log/begin")


@damage
def no_mark(data):
    """The mark is gone, which only weakens the evidence."""
    (data / "log/mark").unlink()


@damage
def flipped_archive(data):
    """A bit of an archived segment is another."""
    flip(archived(data)[1])


@damage
def missing_archive(data):
    """An archived segment is gone."""
    archived(data)[1].unlink()


@damage
def flipped_snapshot(data):
    """A bit of the snapshot is another."""
    flip(next((data / "snapshots").glob("*.snapshot")))


@damage
def newer(data):
    """The id names a newer data format."""
    content = (data / "log/id").read_bytes()
    changed = content[:8] + struct.pack("<I", 99) + content[12:-4]
    (data / "log/id").write_bytes(changed + struct.pack("<I", crc32c(changed)))


@damage
def empty(data):
    """The log's directory is there and empty."""
    shutil.rmtree(data / "log")
    (data / "log").mkdir()


@damage
def no_log(data):
    """There is no log."""
    shutil.rmtree(data / "log")
