"""Every order of a few deeds around a captured graph: what it reads stays as long as anybody could replay it.

Random histories meet such orders by chance; here all of them are met to a stated length, from a graph over rows, a
window and a state, with two engines and memory for one prompt and a half.
"""

from __future__ import annotations

from itertools import product

import pytest

from kvledger.kinds import Kind
from kvledger.wire.replies import Reserved, TopologyReport
from kvledger.wire.requests import (
    ChangeTopology,
    CloseRecapture,
    Commit,
    DropTopology,
    Evict,
    Offload,
    OpenRecapture,
    Release,
    Reserve,
    Restore,
    TopologyPart,
)
from kvledgerd.core.commands import EngineSilent, TopologyOrphaned
from kvledgerd.core.config import PAGE, CoreConfig
from support.layouts import compressed, recurrent, window
from support.world import World, layout

BLOCK = 16
PROMPT, OTHER = list(range(32)), list(range(900, 932))
LAYOUT = layout(compressed("C", BLOCK), window("S", 8, 12), recurrent("M"), block_tokens=BLOCK)
CONFIG = CoreConfig(
    memory_bytes=1 << 20,
    arena_bytes=1 << 15,
    disk_bytes=1 << 20,
    kind_bytes={Kind.COMPRESSED_KV: 3 * PAGE, Kind.SWA_WINDOW: 3 * PAGE, Kind.UNCOMPRESSED_TAIL: 2 * PAGE},
)


class Scene:
    """A captured graph, and what may happen around it."""

    def __init__(self) -> None:
        self.world = World(CONFIG)
        self.owner, self.other = self.world.engine("one"), self.world.engine("two")
        self.number = self.owner.register(LAYOUT)
        self.owner.store(self.number, PROMPT)
        self.hit = self.owner.acquire(self.number, PROMPT, leave=0)
        self.topology = self.owner.capture(self.hit)
        objects = self.world.state.topologies[self.topology].objects.values()
        self.reads = {(o.arena, o.offset): self.world.memory[o.arena, o.offset] for o in objects}

    def check(self) -> None:
        """As long as the topology stands its addresses hold what was there, wrong or right, and nothing else."""
        if self.topology in self.world.state.topologies:
            for place, data in self.reads.items():
                assert self.world.memory[place] == data, place

    def at(self, user, prompt):
        """A prompt's end."""
        return user.boundary(self.number, prompt)

    def release(self) -> None:
        """The lease goes; from then on the graph alone holds."""
        self.owner.ask(Release(self.hit.lease))

    def crowd(self) -> None:
        """Another engine wants the memory."""
        reply = self.other.ask(Reserve(self.number, self.at(self.other, OTHER)))
        if isinstance(reply, Reserved):
            self.other.fill(reply, seed=1)
            self.other.ask(Commit(reply.unit))

    def evict(self) -> None:
        """An operator drops what he can, on disk too."""
        for spec in LAYOUT.groups:
            self.other.ask(Evict(spec.kind, self.number, self.at(self.other, PROMPT), spec.name, disk=True))

    def offload(self) -> None:
        """The prompt goes to disk, and out of memory where nobody keeps it."""
        self.other.ask(Offload(self.number, self.at(self.other, PROMPT), drop_memory=True))

    def store_again(self) -> None:
        """Other bytes for the same prompt are brought, and for what lacks of it restored."""
        self.other.ask(Restore(self.number, self.at(self.other, PROMPT)))
        reply = self.other.ask(Reserve(self.number, self.at(self.other, PROMPT)))
        if isinstance(reply, Reserved):
            self.other.fill(reply, seed=2)
            self.other.ask(Commit(reply.unit))

    def rot(self) -> None:
        """Memory changes behind the daemon's back, and the daemon is killed."""
        for place in sorted(self.reads)[:1]:
            self.world.memory[place] = self.reads[place] = b"rotten"
        self.restart()

    def restart(self) -> None:
        """The daemon is killed; its arenas are found again."""
        self.world.restart()
        self.owner, self.other = self.world.engine("one"), self.world.engine("two")

    def lose(self) -> None:
        """The daemon comes back without the rows' arena, so that the graph is broken; again, without the next one."""
        gone = min((arena for arena, _ in self.reads), default=0)
        self.reads = {place: data for place, data in self.reads.items() if place[0] != gone}
        self.world.restart(lost=gone)
        self.owner, self.other = self.world.engine("one"), self.world.engine("two")

    def leave(self) -> None:
        """The owner's connections end, and begin anew."""
        self.world.do(EngineSilent(self.owner.caller.engine, silent=True))
        self.owner.leave()
        self.owner = self.world.engine("one")

    def recapture(self) -> None:
        """The owner captures anew, over what a new look-up hands out."""
        hit = self.owner.acquire(self.number, PROMPT, leave=0, restore=False)
        self.owner.ask(OpenRecapture(self.topology))
        parts = [TopologyPart(hit.lease, 0, [])] if hit.lease else []
        reply = self.owner.ask(ChangeTopology(self.topology, parts, [], whole=True))
        if isinstance(reply, TopologyReport):
            objects = self.world.state.topologies[self.topology].objects.values()
            self.reads = {(o.arena, o.offset): self.world.memory[o.arena, o.offset] for o in objects}
        self.owner.ask(CloseRecapture(self.topology))
        self.owner.ask(Release(hit.lease))

    def drop(self) -> None:
        """The owner lets go."""
        self.owner.ask(DropTopology(self.topology))

    def die(self) -> None:
        """All processes of the owner end."""
        self.owner.leave()
        self.world.do(TopologyOrphaned(self.topology))
        self.owner = self.world.engine("one")


DEEDS = (
    "release", "crowd", "evict", "offload", "store_again", "rot", "restart", "lose", "leave", "recapture", "drop",
    "die",
)  # fmt: skip


@pytest.mark.parametrize("first", DEEDS)
@pytest.mark.parametrize("length", [2, pytest.param(4, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_no_order_of_deeds_moves_what_a_graph_reads(first, length):
    """After every deed the addresses hold what they held, and in the end nothing is pinned by nobody."""
    for deeds in product([first], *[DEEDS] * (length - 1)):
        scene = Scene()
        for deed in deeds:
            getattr(scene, deed)()
            scene.check()
        scene.release()
        scene.world.do(TopologyOrphaned(scene.topology))
        assert not any(cell.pins for cell in scene.world.state.cells.values()), deeds
        assert scene.world.replayed().digest() == scene.world.state.digest(), deeds
