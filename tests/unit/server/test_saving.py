"""Before an orderly stop what would be lost is named some at a time, as long as there is time."""

from __future__ import annotations

import pytest

from kvledger.wire.replies import Offloaded
from kvledgerd.core.commands import SaveDue
from kvledgerd.life.saving import save

CELLS = 3000


class Stopping:
    """A daemon that stops, and has nothing on its way after so many looks at each part."""

    def __init__(self, looks: int, *, stays: bool = False) -> None:
        self.left, self.stays, self.walks = looks, stays, 0
        self.asked: list[SaveDue] = []
        self._looks = looks

    def unsaved(self) -> list[int]:
        """Walk through all cells."""
        self.walks += 1
        return list(range(CELLS)) if self.walks == 1 or self.stays else []

    async def ask(self, due: SaveDue) -> Offloaded:
        """Have some cells written."""
        self.asked.append(due)
        self.left = self._looks if self.left == 0 else self.left - 1
        return Offloaded(self.left, 0)


@pytest.mark.asyncio
async def test_all_cells_are_walked_through_once_and_looked_at_a_part_at_a_time():
    """Each look is at one part of them, in their order, and the last walk finds that nothing is left."""
    daemon = Stopping(looks=2)
    await save(daemon.ask, daemon.unsaved, 60)
    *parts, last = list(dict.fromkeys(due.cells for due in daemon.asked))
    assert last == ()
    assert [number for part in parts for number in part] == list(range(CELLS))
    assert max(map(len, parts)) < CELLS // 2
    assert (daemon.walks, len(daemon.asked) > len(parts)) == (2, True)


@pytest.mark.asyncio
async def test_what_can_not_be_written_keeps_nobody_from_stopping():
    """What is still there after all of it was tried is left, whatever time there is."""
    daemon = Stopping(looks=0, stays=True)
    await save(daemon.ask, daemon.unsaved, 60)
    assert daemon.walks == 2


@pytest.mark.asyncio
async def test_a_stop_ends_when_its_time_is_over():
    """No further part is begun then, however much is left."""
    daemon = Stopping(looks=1000)
    await save(daemon.ask, daemon.unsaved, 0)
    assert daemon.walks == 1
    assert {due.cells for due in daemon.asked} == {tuple(range(len(daemon.asked[0].cells)))}
