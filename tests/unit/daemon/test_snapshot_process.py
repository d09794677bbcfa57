"""When the daemon asks for a snapshot, and how urgently."""

from __future__ import annotations

import asyncio

import pytest

from kvledgerd.snapshots.process import SnapshotProcess


@pytest.mark.asyncio
@pytest.mark.parametrize(("events", "asked"), [(9, []), (10, [()]), (19, [()]), (20, [("--overdue",)])])
async def test_one_that_is_overdue_does_not_stand_back(tmp_path, events, asked):
    """A start that finds twice as many events as there should be is followed by a snapshot at full priority."""
    made = asyncio.Event()
    process, found = SnapshotProcess(tmp_path, 10, 0, made.set), []

    def run(*arguments):
        found.append(arguments)
        return 0, str(events), ""

    process.run = run
    process.look(events)
    if asked:
        await asyncio.wait_for(made.wait(), 60)
    assert found == asked
