"""A random history in which the daemon also works by itself: it writes, cleans, scrubs, moves, converts and warms up.

What it does is late, fails or comes to nothing now and then, and the history goes on from a snapshot as well. Two
layouts hold the same rows in other page formats, so that restores convert.
"""

import random
from itertools import count
from typing import ClassVar

from msgspec.structs import replace

from kvledger.kinds import Kind
from kvledger.wire.disk_requests import SetScrub, Warm
from kvledger.wire.evictions import EvictMany
from kvledger.wire.replies import Reserved
from kvledger.wire.requests import Offload, Restore
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk_events import MANIFEST
from kvledgerd.core.commands import (
    Command,
    ConnectionEnded,
    Converted,
    DegradeDue,
    DemoteDue,
    MemoryDue,
    Moved,
    Probed,
    ProbeDue,
    RestoreDone,
    RoomWanted,
    SaveDue,
    Written,
)
from kvledgerd.core.config import CoreConfig, DiskWritePolicy
from kvledgerd.core.copies.decide_write import unsaved
from kvledgerd.core.decision import ConvertSlots, DiskProbe, DiskRead, DiskWrite, Later, MoveSlots
from kvledgerd.core.disk_commands import RecordsCopied, RecordsLost, RestoreLate, Scrubbed, SeenRecord, TierNoted
from kvledgerd.core.holdings import RestoreJob
from kvledgerd.core.invariants import violations
from kvledgerd.snapshots import proof
from kvledgerd.snapshots.decode import decode_state
from property import test_core_histories as histories
from property.test_core_histories import BLOCK, History, facts
from support.layouts import compressed, recurrent, window
from support.world import World, layout

__all__ = ["TidyHistory"]

SPLIT, BY_HEADS = (
    layout(compressed("C", BLOCK, layout_id=name), window("S", 8, 12), recurrent(), block_tokens=BLOCK)
    for name in ("kv.nhd:2", "kv.hnd:2")
)
"""The same rows in two page formats, and the same window and state."""
DECISIONS_MAX = 60
"""More than what one deed leaves to be decided later, and what that leaves, can come to."""


class Keeper(World):
    """A world whose workers fail now and then, and whose records are named as their headers name them."""

    def __init__(self, config: CoreConfig, seed: int) -> None:
        self.random = random.Random(seed)
        self.headers: dict[tuple[int, int], SeenRecord] = {}
        self.later: list[Command] = []
        super().__init__(config)

    def run(self, effect) -> None:
        """Carry out one effect and answer it, or say that it failed."""
        fails = self.random.random() < 0.1
        match effect:
            case ConvertSlots():
                self.do(Converted(effect.job, error="made up") if fails else self._converted(effect))
            case DiskProbe():
                self.do(Probed(self.random.choice(["", "failed: made up", "damaged: made up"])))
            case DiskWrite():
                self.do(Written(effect.job, error="made up") if fails else self.written(effect))
            case DiskRead() if fails:
                error = self.random.choice(["failed: made up", "cancelled: made up"])
                self.do(RestoreDone(effect.job, (error,) * len(effect.records)))
            case MoveSlots() if fails:
                self.do(Moved(effect.job, error="made up"))
            case Later():
                self.later.append(effect.command)
            case _:
                super().run(effect)

    def _converted(self, effect: ConvertSlots) -> Converted:
        prints = []
        for one in effect.objects:
            self.memory[one.target_arena, one.target_offset] = self.memory[one.arena, one.offset]
            prints.append((one.index, one.fingerprint))
        return Converted(effect.job, tuple(prints))

    def written(self, effect: DiskWrite) -> Written:
        """Write records and a manifest, and remember what their headers say."""
        found = super().written(effect)
        *refs, manifest = found.refs
        prints = dict(found.prints)
        for number, (record, ref) in enumerate(zip(effect.records, refs, strict=True)):
            fingerprint = prints.get(number, record.fingerprint)
            name = (record.cell, record.slot, record.generation, effect.layout, int(record.kind), fingerprint)
            self.headers[ref.segment, ref.offset] = SeenRecord(*name, ref)
        name = (effect.cell, MANIFEST, effect.generation, effect.layout, int(Kind.DISK_PREFIX), bytes(16))
        self.headers[manifest.segment, manifest.offset] = SeenRecord(*name, manifest)
        return found

    def copied(self, seen: SeenRecord) -> BlobRef:
        """Copy a record to another place, as a cleaner does."""
        ref = self._write(self.disk[seen.ref.segment, seen.ref.offset])
        self.headers[ref.segment, ref.offset] = replace(seen, ref=ref)
        return ref

    def seen(self) -> list[SeenRecord]:
        """Return the records on disk as a reader sees them."""
        found = (self.headers[at] for at in sorted(self.disk) if at in self.headers)
        return [replace(one, error="made up") if self._is_damaged(one.ref) else one for one in found]

    def _is_damaged(self, ref: BlobRef) -> bool:
        return self.disk[ref.segment, ref.offset] == b"damaged"


class TidyHistory(History):
    """See `History`; the daemon keeps its disk and its memory in order meanwhile."""

    deeds: ClassVar = History.deeds | {
        "due": 6, "memory": 3, "clean": 3, "scrub": 2, "lost": 0.3, "late": 6, "read_only": 0.3, "room": 0.3,
        "degrade": 0.3, "probe": 1, "warm": 1, "sweep": 0.5, "save": 0.3, "snapshot": 1.5, "hang_up": 0.5, "restore": 6,
        "damage": 0.5, "forget": 0.5,
    }  # fmt: skip
    layouts: ClassVar = [SPLIT, BY_HEADS, histories.LAYOUTS[2]]

    def begin(self, seed: int) -> World:
        """Return the world that it begins in; what goes to disk by itself is one of the four policies."""
        policy = list(DiskWritePolicy)[seed % 4]
        self.copies: list[Command] = []
        memory = {"memory_bytes": 32 << 12, "arena_bytes": 8 << 12}
        return Keeper(replace(histories.CONFIG, disk_write=policy, compact_percent=20, **memory), seed)

    def store(self) -> None:
        """Store and find again, also where restores had stopped."""
        self.world.do(Probed(""))
        super().store()

    def restart(self) -> None:
        """Kill the daemon; whatever was to be decided later is forgotten, and restores may begin."""
        self.world.do(Probed(""))
        self.world.later, self.copies = [], []
        super().restart()

    def due(self) -> None:
        """Decide what was left for later, and what that leaves; it comes to an end."""
        for left in count():
            commands = [*dict.fromkeys(self.world.later), *self.copies]
            self.world.later, self.copies = [], []
            for command in commands:
                self.world.do(command)
            if not commands or self.world.held is not None:
                break
            assert left < DECISIONS_MAX
        self.world.do(DemoteDue("default"))

    def memory(self) -> None:
        """Look after memory: an arena ahead of need, or objects out of one that is nearly empty."""
        self.world.do(MemoryDue())

    def clean(self) -> None:
        """Copy some records, and say so now or later."""
        chosen = [seen for seen in self.world.seen() if not seen.error and self.random.random() < 0.3]
        self.copies.append(RecordsCopied(1, tuple((seen, self.world.copied(seen)) for seen in chosen)))
        if self.random.random() < 0.5:
            self.world.do(self.copies.pop())

    def scrub(self) -> None:
        """Read some records; the pass may end with them."""
        seen = tuple(one for one in self.world.seen() if self.random.random() < 0.5)
        self.world.do(Scrubbed(1, 0, seen, self.random.choice([0, 7])))
        self.users[0].ask(SetScrub(paused=self.random.random() < 0.5, now=self.random.random() < 0.5))

    def lost(self) -> None:
        """Lose a record, and find that out."""
        for one in self.some(self.world.seen()):
            self.world.disk[one.ref.segment, one.ref.offset] = b"damaged"
            self.world.do(RecordsLost((one.ref,), "made up", "scrub"))

    def late(self) -> None:
        """Restore what lies on disk alone, and give up on what is running; the answers come all the same."""
        if self.world.held is not None:
            return
        index, number, prompt, end = self.pick()
        user = self.users[index]
        reserved = user.ask_reserve(number, prompt, end)
        if isinstance(reserved, Reserved):
            user.fill(reserved, seed=self.seed(histories.PROMPTS.index(prompt)))
            user.commit(reserved)
        at = user.boundary(number, prompt, end)
        user.ask(Offload(number, at, drop_memory=True))
        self.hold()
        user.ask(Restore(number, at))
        for job in [job for job in self.world.state.jobs.values() if isinstance(job, RestoreJob)]:
            if self.random.random() < 0.5:
                self.world.do(RestoreLate(job.id, 5))

    def read_only(self) -> None:
        """The tier takes no writes any more, or takes them again."""
        self.world.do(TierNoted(self.random.choice(["", "made up"])))

    def room(self) -> None:
        """The disk under the log is full."""
        self.world.do(RoomWanted(self.random.choice([1 << 12, 1 << 15]), "made up"))

    def degrade(self) -> None:
        """Too many restores failed."""
        self.world.do(DegradeDue("made up"))

    def probe(self) -> None:
        """Try whether the disk can be read again."""
        self.world.do(ProbeDue())

    def warm(self) -> None:
        """Bring back what is hot."""
        if self.world.held is None:
            self.users[0].ask(Warm())

    def sweep(self) -> None:
        """An operator drops copies of one kind, wherever they are."""
        memory, disk = self.random.choice([(True, False), (False, True), (True, True)])
        self.users[0].ask(EvictMany(self.random.choice(list(Kind)), memory=memory, disk=disk))

    def save(self) -> None:
        """Write what would be lost."""
        self.world.do(SaveDue(tuple(unsaved(self.world.state))))

    def hang_up(self) -> None:
        """A connection ends while its engine lives on; what it had the daemon convert ends with it."""
        caller = self.random.choice(self.users).caller
        self.world.do(ConnectionEnded(caller.engine, caller.connection, "made up"))

    def snapshot(self) -> None:
        """A snapshot makes the same state, with which the history may go on."""
        body, digest = proof.proven(self.world.state)
        made = decode_state(body, self.world.config)
        assert facts(made) == facts(self.world.state)
        assert (violations(made), made.recomputed_digest()) == ([], digest)
        if self.random.random() < 0.5:
            self.world.state = made
