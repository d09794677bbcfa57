"""What stands in for retired events: made once, by one process at a time, and never of another moment than it says."""

from __future__ import annotations

import pytest

from kvledger_storage.log import RealLogIO, read_events
from kvledger_storage.log.archive import archive_through, retire_through, sealed_ends
from kvledger_storage.log.inspection import load_identity
from kvledger_storage.snapshot import snapshot_lock, snapshot_names
from kvledgerd.replaying import apply_logged
from kvledgerd.snapshots.make import make_snapshot
from kvledgerd.snapshots.origin import keep_floor, make_floor, origin
from support.audit import history_of, write_frames

IO = RealLogIO()


class Past:
    """A data directory with a log of several segments."""

    def __init__(self, data):
        self.data, self.directory = data, data / "log"
        raws = history_of(2, 300).world.log
        write_frames(raws, data, segment_bytes=8192)
        self.last_seq = len(raws)
        self.identity = load_identity(IO, self.directory)
        self.ends = list(sealed_ends(IO, self.directory))

    @property
    def archive(self):
        """The directory of what was archived."""
        return self.directory / "archive"

    def floors(self):
        """Return the last events of the snapshots in the archive, newest first."""
        return [int(name[:20]) for name in snapshot_names(IO, self.archive)]

    def archive_through(self, end):
        """Archive what lies before the end of a segment."""
        archive_through(IO, self.directory, self.identity, end)

    def retire_through(self, end):
        """Retire what lies before the end of a segment."""
        retire_through(IO, self.directory, self.identity, end)

    def digest(self):
        """Return the digest of the state that a replay of everything left comes to."""
        begun = origin(IO, self.data)
        for one in read_events(IO, self.directory, from_seq=begun.seq + 1):
            apply_logged(self.directory, begun.state, one)
        return begun.state.recomputed_digest()


@pytest.fixture
def past(tmp_path):
    """Give a log whose first four segments are archived."""
    found = Past(tmp_path)
    assert len(found.ends) > 5
    found.archive_through(found.ends[3])
    return found


def test_one_that_an_ended_daemon_had_begun_is_taken(past):
    """The process that makes one outlives its daemon: what it left is not made again, and a replay is what it was."""
    digest, seq = past.digest(), past.ends[1].seq - 1
    make_floor(past.data, seq)
    (floor,) = past.archive.glob("*.snapshot")
    before = floor.stat()
    make_floor(past.data, seq)
    assert floor.stat().st_ino == before.st_ino
    past.retire_through(past.ends[1])
    assert (past.floors(), past.digest()) == ([seq], digest)


def test_one_process_is_at_it(past):
    """While another process makes one, asking for one is an error that says so and leaves that other alone."""
    past.archive.joinpath("half.snapshot.draft").write_bytes(b"half")
    with snapshot_lock(IO, past.archive), pytest.raises(BlockingIOError, match="another process"):
        make_floor(past.data, past.ends[1].seq - 1)
    assert past.archive.joinpath("half.snapshot.draft").exists()


def test_a_later_one_stands_in_for_an_earlier(past):
    """What a full disk left as the floor is of a later moment; whatever is retired before that needs no other."""
    digest, later = past.digest(), make_snapshot(past.data)
    assert later.seq >= past.ends[2].seq
    assert keep_floor(past.data, past.ends[0].seq - 1)
    past.retire_through(past.ends[0])
    make_floor(past.data, past.ends[2].seq - 1)
    past.retire_through(past.ends[2])
    assert (past.floors(), past.digest()) == ([later.seq], digest)
