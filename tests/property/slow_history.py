"""A random history on a slow disk: writing, reading, moving and hashing end one by one, whenever they like.

Everything else goes on at once meanwhile: boundaries are stored, dropped and looked up while half of what they stand on
is at work, and records are cleaned under a job. Rows and their keys are quantised, and written anew exactly.
"""

from typing import ClassVar

from msgspec.structs import replace

from kvledger.kinds import Kind
from kvledger.wire.evictions import EvictMany
from kvledger.wire.replies import Acquired, Committed
from kvledger.wire.requests import Acquire, Commit, Offload, Release
from kvledgerd.core.config import CoreConfig, DiskWritePolicy
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.decision import DiskRead, DiskWrite, MoveSlots, Park, VerifySlots
from kvledgerd.core.disk_commands import RecordsLost
from property import test_core_histories as histories
from property.tidy_history import Keeper, TidyHistory
from support.layouts import compressed, indexer, recurrent, window
from support.world import World, layout

__all__ = ["SlowHistory"]

ROWS = {"row_bytes": 128, "dtype": "bfloat16"}
COUPLE = compressed("C", histories.BLOCK, **ROWS), indexer("X", histories.BLOCK, **ROWS)
KINDS = Kind.COMPRESSED_KV, Kind.INDEXER_STATE, Kind.SWA_WINDOW
PRECISIONS = (
    {},
    {Kind.COMPRESSED_KV: Precision.E4M3},
    {Kind.COMPRESSED_KV: Precision.INT8, Kind.INDEXER_STATE: Precision.E4M3},
)


class SlowKeeper(Keeper):
    """A world in which what takes long is at work until it is told to end."""

    def __init__(self, config: CoreConfig, seed: int) -> None:
        self.at_work: list = []
        super().__init__(config, seed)

    def run(self, effect) -> None:
        """Carry out one effect, or begin it."""
        if isinstance(effect, DiskWrite | DiskRead | MoveSlots | VerifySlots):
            self.at_work.append(effect)
        else:
            super().run(effect)

    def waits(self, park: Park) -> bool:
        """Tell whether what a command is parked for is at work."""
        return any(effect.job in park.jobs for effect in self.at_work)

    def end(self, number: int) -> None:
        """Let one thing at work end."""
        super().run(self.at_work.pop(number))

    def restart(self, **fields) -> None:
        """Kill the daemon; nobody hears any more how its work ends."""
        self.at_work = []
        super().restart(**fields)


class SlowHistory(TidyHistory):
    """See the top of this file."""

    deeds: ClassVar = {
        "end": 2, "store": 6, "reserve": 3, "fill": 4, "commit": 4, "abort": 0.5, "acquire": 3, "approximate": 2,
        "release": 3, "offload": 5, "exact": 4, "restore": 5, "sweep": 5, "lost": 3, "forget": 0.5, "evict": 1,
        "due": 2, "memory": 2, "clean": 2, "scrub": 0.5, "save": 0.4, "room": 0.3, "snapshot": 0.5, "restart": 0.5,
        "gone": 0.3, "epoch": 0.2, "capture": 0.5, "orphan": 0.5,
    }  # fmt: skip
    layouts: ClassVar = [
        layout(*COUPLE, block_tokens=histories.BLOCK, allow_approx=True),
        layout(
            *COUPLE,
            window("S", 8, 12),
            recurrent(coupled_to="C", halo_rows=4),
            block_tokens=histories.BLOCK,
            allow_approx=True,
            weights_digest="other",
        ),
        histories.LAYOUTS[2],
    ]

    quiet = False
    """Not even what a start hashes has an end by the next deed."""

    def begin(self, seed: int) -> World:
        """Return the world that it begins in, with one of the policies of writing and some precisions on disk."""
        self.copies = []
        fields = {"disk_write": list(DiskWritePolicy)[seed % 4], "disk_precision": PRECISIONS[seed % 3]}
        memory = {"memory_bytes": 64 << 12, "disk_bytes": 400 << 12, "max_objects": 400}
        return SlowKeeper(replace(histories.CONFIG, compact_percent=20, **memory, **fields), seed)

    def pick(self):
        """An engine, a layout and a boundary of one of few prompts, so that much happens to each."""
        index, number, _, _ = super().pick()
        return index, number, histories.PROMPTS[self.random.choice([0, 0, 0, 1])], self.random.choice([16, 32, 32])

    def store(self) -> None:
        """Reserve, fill and commit; a commit that has to wait for what is at work is sent again later."""
        reserved = self.reserve()
        if reserved is not None:
            user = self.users[self.units[-1][0]]
            user.fill(reserved, seed=self.seed(self.prompts[reserved.unit]))
            if isinstance(user.ask(Commit(reserved.unit)), Committed):
                self.units.pop()

    def end(self) -> None:
        """One thing at work ends."""
        if self.world.at_work:
            self.world.end(self.random.randrange(len(self.world.at_work)))

    def approximate(self) -> None:
        """Look up what may be approximate, and have it read."""
        index, number, prompt, _ = self.pick()
        user = self.users[index]
        answer = user.ask(Acquire(number, len(prompt), user.boundary(number, prompt).hashes, approx=True))
        if isinstance(answer, Acquired) and answer.lease:
            user.ok(Release(answer.lease))

    def sweep(self) -> None:
        """An operator drops one kind from memory or from disk, so that half of a couple stays."""
        memory = self.random.random() < 0.5
        self.users[0].ask(EvictMany(self.random.choice(KINDS), memory=memory, disk=not memory))

    def exact(self) -> None:
        """Write a boundary anew where it was quantised; one kind of it may lie on disk alone, and be lost meanwhile."""
        index, number, prompt, end = self.pick()
        kind = self.random.choice([None, *KINDS])
        if kind is not None:
            self.users[0].ask(EvictMany(kind, memory=True, disk=False))
        self.users[index].ask(Offload(number, self.users[index].boundary(number, prompt, end), exact=True))
        if kind is not None:
            self.lose(kind)

    def lost(self) -> None:
        """Lose records of one kind, and find that out."""
        self.lose(self.random.choice(KINDS))

    def lose(self, kind: Kind) -> None:
        """Damage records of a kind."""
        mine = [one.ref for one in self.world.seen() if one.kind == kind and self.random.random() < 0.5]
        for ref in mine:
            self.world.disk[ref.segment, ref.offset] = b"damaged"
        self.world.do(RecordsLost(tuple(mine), "made up", "scrub"))

    def run(self, steps: int) -> None:
        """Do random things, then let all work end."""
        super().run(steps)
        while self.world.at_work:
            self.end()
