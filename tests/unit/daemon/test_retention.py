"""How the archive is brought back to its cap: in steps that end, however much there is to retire."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kvledger.wire.replies import Done
from kvledger_storage.log import Anchor
from kvledgerd.life.retention import Retention
from kvledgerd.snapshots.process import FloorProcess

MIB = 1 << 20


class Archive:
    """A log with an archive of segments, each of ten events, which lets go of what is retired when it is told to."""

    def __init__(self, segments: int, size: int):
        self.starts = [(Anchor(1 + 10 * number, bytes(32)), size) for number in range(segments)]
        self.begins = SimpleNamespace(live=Anchor(1 + 10 * segments, bytes(32)))
        self.asked = []

    def archived_starts(self):
        """Return where each segment begins, and its bytes."""
        return list(self.starts)

    async def ask(self, command):
        """Note how many segments are retired by a command, and remove them."""
        left = [one for one in self.starts if one[0].seq >= command.seq]
        self.asked.append(len(self.starts) - len(left))
        self.starts = left
        return Done()


@pytest.fixture
def floors(monkeypatch):
    """Return the arguments with which the process that makes floors was started; it always succeeds."""
    found = []

    def run(_, *arguments):
        found.append(arguments)
        return 0, "", ""

    monkeypatch.setattr(FloorProcess, "run", run)
    return found


async def settle(retention):
    """Look again and again, as the daemon does, until nothing is due."""
    for _ in range(50):
        retention.look()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "retention"))


def retention_of(path, archive, cap):
    """Return what looks after an archive."""
    space = SimpleNamespace(is_short=False)
    return Retention(path, archive, archive_bytes=cap, room_bytes=0, ask=archive.ask, space=space)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("size", "cap", "steps", "overdue"),
    [
        (3 * MIB, 9 * MIB, [2, 2, 2, 1], [True, True, False, False]),
        (16 * MIB, 150 * MIB, [1], [False]),
        (MIB, 10 * MIB, [], []),
        (MIB, 0, [4, 4, 2], [True, True, True]),
    ],
)
async def test_an_archive_returns_to_its_cap_in_small_steps(tmp_path, floors, size, cap, steps, overdue):
    """Each step is a few MiB or a segment; from twice the cap on it stands back for nothing."""
    archive = Archive(10, size)
    await settle(retention_of(tmp_path, archive, cap))
    assert archive.asked == steps
    assert ["--overdue" in arguments for arguments in floors] == overdue
    assert sum(size for _, size in archive.starts) <= cap


@pytest.mark.asyncio
async def test_what_is_retired_and_not_yet_removed_is_not_retired_again(tmp_path, floors):
    """Files go behind the event; until they have, the next step begins behind them."""
    archive = Archive(10, MIB)

    async def ask(command):
        archive.asked.append(command.seq)
        return Done()

    archive.ask = ask
    await settle(retention_of(tmp_path, archive, 2 * MIB))
    assert archive.asked == [41, 81]
    assert [arguments[1] for arguments in floors] == ["40", "80"]
