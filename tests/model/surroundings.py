"""The shell of the explorer: it carries decisions out on a memory of numbers, and says what no reader may ever see.

A decision's effects on generations and disk records run at once; jobs wait for an answer, which may be any, in any
order, or never come. A parked request is decided anew when one of its jobs was answered, as the daemon does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from kvledger.epochs import EpochState
from kvledger.geometry import BOUNDARY, bits
from kvledger.wire.replies import Acquired, Reserved
from kvledger_storage import events
from kvledger_storage.blob_ref import BlobRef
from kvledgerd.core.apply import apply
from kvledgerd.core.commands import Command
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import (
    CopyIn,
    Decision,
    DiskRead,
    DiskWrite,
    DropBlobs,
    Effect,
    MakeArena,
    MoveSlots,
    SetGenerations,
    VerifySlots,
)
from kvledgerd.core.holdings import RestoreJob, Unit
from kvledgerd.core.index import ARENA, COMMIT, FP_LOW
from kvledgerd.core.state import State
from model.moves import asked
from model.scope import Scope
from model.sides import ENGINE_KEYS, Handle, Place, Sides

__all__ = ["Broken", "Surroundings", "fingerprint"]

GARBAGE = 2**63
MANIFEST = 2**62
FIRST_RECORD = 1000


class Broken(Exception):  # noqa: N818  it is no error of the explorer but what it looks for
    """Something happened that must never happen."""


def fingerprint(content: int) -> bytes:
    """Return the fingerprint of a content; contents are small enough to be their own."""
    return content.to_bytes(16, "big")


class Surroundings:
    """One state with what lies around it."""

    def __init__(self, scope: Scope, state: State, sides: Sides) -> None:
        self.scope = scope
        self.state = state
        self.sides = sides
        self.begin()

    def begin(self) -> None:
        """Note what is stored before a step."""
        self.may_go: set[tuple[int, int, str]] = set()
        self.before = [(cell.id, cell, cell.memory, cell.disk) for cell in self.state.cells.values()]

    def carry(self, command: Command, decision: Decision, engine: int = -1, label: str = "") -> None:
        """Apply a decision, carry its effects out, and park or answer the command."""
        for _ in range(20):
            for event in decision.events:
                self._note(event)
                apply(self.state, event)
            for _, effect in decision.effects:
                self._run(effect)
            if decision.park is None:
                if isinstance(decision.reply, Acquired) and decision.reply.lease:
                    self._lease(decision.reply, engine, label)
                elif isinstance(decision.reply, Reserved):
                    self._check_reserved(self.state.units[decision.reply.unit])
                return
            if decision.park.jobs:
                unit = command.body.unit if label == "put" else 0
                self.sides.parked[engine] = (label, unit, decision.park.jobs)
                return
            decision = decide(self.state, command)
        raise Broken(f"{label} is never answered")

    def answered(self, job: int) -> None:
        """Decide anew what waited for a job."""
        for engine, (label, unit, jobs) in list(self.sides.parked.items()):
            if job in jobs and engine in self.sides.parked:
                del self.sides.parked[engine]
                command = replace(asked(self.scope, self.state, engine, label, unit), parked=jobs)
                self.carry(command, decide(self.state, command), engine, label)

    def expired(self, engine: int) -> None:
        """Decide a parked request for the last time, since its deadline passed."""
        label, unit, jobs = self.sides.parked.pop(engine)
        command = replace(asked(self.scope, self.state, engine, label, unit), parked=jobs, waited=True)
        decision = decide(self.state, command)
        if decision.reply is None:
            raise Broken(f"{label} is not answered at its deadline")
        self.carry(command, decision, engine, label)

    def restarted(self) -> None:
        """Forget what died with the daemon, and write the generation tables of adopted arenas anew."""
        self.sides.parked.clear()
        self.sides.pending.clear()
        self.sides.generations = {
            (arena, offset): generation
            for arena in self.state.arenas
            for offset, _, generation in self.state.generations(arena)
        }

    # --- effects ------------------------------------------------------------------------------------------------

    def _run(self, effect: Effect) -> None:
        sides = self.sides
        match effect:
            case SetGenerations():
                self._move_generations(effect.slots)
            case MakeArena():
                sides.pending[effect.job] = ("arena", ((effect.arena,),))
            case CopyIn():
                sides.pending[effect.job] = ("copy", tuple(self._range(effect.unit, r) for r in effect.ranges))
            case VerifySlots():
                sides.pending[effect.job] = ("verify", tuple((a, o) for a, o, _ in effect.slots))
            case DiskWrite():
                prints = [int.from_bytes(r.fingerprint, "big") for r in effect.records]
                places = ((r.arena, r.offset, p) for r, p in zip(effect.records, prints, strict=True))
                sides.pending[effect.job] = ("write", tuple(places))
            case DiskRead():
                if self.state.degraded:
                    raise Broken("a restore begins though the disk fails")
                sides.pending[effect.job] = ("read", tuple(self._record(r) for r in effect.records))
            case MoveSlots():
                places = ((c[0:2], c[2:4]) for c in effect.copies)
                sides.pending[effect.job] = ("move", tuple(place for pair in places for place in pair))
            case DropBlobs():
                self._give_back(effect.refs)

    def _move_generations(self, slots: Iterable[tuple[int, int, int, int]]) -> None:
        for arena, offset, _, generation in slots:
            self.write((arena, offset), 0)
            self.sides.generations[arena, offset] = generation

    def _give_back(self, refs: Iterable[BlobRef]) -> None:
        for ref in refs:
            if self.sides.disk.pop((ref.segment, ref.offset), None) is None:
                raise Broken(f"record {ref.offset} is given back and is not there")

    def _range(self, unit_id: int, item: Any) -> tuple[int, ...]:
        unit = self.state.units[unit_id]
        target = unit.objects[item.index]
        engine = ENGINE_KEYS.index(self.state.engines[unit.engine].key)
        chain = self.scope.residue_numbers[unit.residue_hash]
        node = self.scope.block_numbers[unit.node_of(target).hash]
        return item.arena, item.slot_offset, self.scope.content(node, chain, target, engine), item.index

    @staticmethod
    def _record(record: Any) -> tuple[int, ...]:
        return record.arena, record.offset, int.from_bytes(record.fingerprint, "big"), record.ref.offset

    def write(self, place: Place, content: int) -> None:
        """Change what lies at a place; nobody may be reading it."""
        for lease, handles in self.sides.handles.items():
            if lease in self.state.leases and any((h[2], h[3]) == place for h in handles):
                raise Broken(f"arena {place[0]} at {place[1]} is written under lease {lease}")
        self.sides.memory[place] = content

    def store(self, content: int) -> BlobRef:
        """Write a record."""
        offset = max((o for _, o in self.sides.disk), default=0) + FIRST_RECORD
        self.sides.disk[1, offset] = content
        return BlobRef(1, offset, 1)

    # --- what may be lost ---------------------------------------------------------------------------------------

    def _note(self, event: events.Event) -> None:
        """Note which copies an event says it drops; any other loss is a lie."""
        match event:
            case events.ObjectsEvicted():
                self._evicted(event)
            case events.LeaseEnded() if event.reason.startswith("revoked"):
                if not self.state.engines[self.state.leases[event.lease].engine].silent:
                    raise Broken(f"lease {event.lease} is revoked, and its engine is heard")
            case events.PrefixForgotten():
                self.may_go.update((event.cell, slot, "disk") for slot in range(8))
            case events.ArenaDropped():
                for cell in self.state.cells.values():
                    here = [s for s in range(len(cell.states)) if cell.memory >> s & 1]
                    self.may_go.update((cell.id, s, "memory") for s in here if cell.word(s, ARENA) == event.arena)
            case events.EpochChanged() if event.state is EpochState.RETIRED:
                slots = ((c.id, s) for c in self.state.cells.values() for s in range(len(c.states)))
                self.may_go.update((*name, place) for name in slots for place in ("memory", "disk"))
            case events.ObjectsVerified():
                self.may_go.update((cell, slot, "memory") for cell, slot in event.wrong)
            case events.RestoreFinished():
                job = self.state.jobs[event.job]
                assert isinstance(job, RestoreJob)
                pairs = zip(job.objects, event.errors, strict=True)
                self.may_go.update((c.id, s, "disk") for (c, s), error in pairs if error.startswith("damaged"))

    def _evicted(self, event: events.ObjectsEvicted) -> None:
        places = [name for name, on in (("memory", event.memory), ("disk", event.disk)) if on]
        self.may_go.update((*name, place) for name in event.objects for place in places)
        for number, slot in event.objects:
            if self.state.cells[number].pins and event.reason != "without its coupled partner":
                raise Broken(f"cell {number} slot {slot} is evicted ({event.reason}) under a pin")

    def check_losses(self) -> None:
        """Check that every copy that is gone was dropped by an event that names it."""
        cells = self.state.cells
        for number, cell, memory, disk in self.before:
            now = (cell.memory, cell.disk) if number in cells else (0, 0)
            if memory & ~now[0]:
                self._check_lost(number, "memory", memory & ~now[0])
            if disk & ~now[1]:
                self._check_lost(number, "disk", disk & ~now[1])

    def _check_lost(self, number: int, place: str, lost: int) -> None:
        for slot in bits(lost):
            if (number, slot, place) not in self.may_go:
                raise Broken(f"cell {number} slot {slot} is gone from {place} and no event says so")

    # --- what readers see ---------------------------------------------------------------------------------------

    def _lease(self, reply: Acquired, engine: int, label: str) -> None:
        """Keep a lease's handles, after comparing them with what a resume at each offer needs."""
        handles = [h for run in reply.rows for h in self._handles(run, -1)]
        for index, offer in enumerate(reply.offers):
            handles += [h for run in offer.runs for h in self._handles(run, index)]
        self.sides.handles[reply.lease] = tuple(handles)
        if any(cell.unverified for cell in self.state.leases[reply.lease].cells() if reply.offers[0].ready):
            raise Broken("bytes are handed out that nobody compared with their fingerprint")
        prompt = int(label.rpartition(" ")[2])
        for index, offer in enumerate(reply.offers):
            if offer.ready:
                self._check_offer(prompt, offer, [h for h in handles if h[0] in {-1, index}])

    def _handles(self, run: Any, offer: int) -> list[Handle]:
        found = list[Handle]()
        for i in range(run.count):
            place = (run.arena, run.offset + i * run.stride)
            if self.sides.generations.get(place) != run.generation:
                raise Broken(f"a handle shows generation {run.generation} at {place}, the table another")
            end = run.first_token + i * run.step + run.tokens
            found.append((offer, end, *place, self.sides.memory[place], run.generation))
        return found

    def _check_offer(self, prompt: int, offer: Any, handles: list[Handle]) -> None:
        """Check that an offer's handles hold all that a resume needs, from one prompt, rows and keys of one commit."""
        scope, chain = self.scope, self.scope.residue_numbers[offer.residue_hash]
        path = [0, *(scope.block_numbers[h] for h in _split(scope.prompts[prompt].hashes))]
        have = {h[4] for h in handles}
        for item in scope.geometry.unit_objects(0, offer.position, boundary=True):
            depth = offer.position // scope.layout.block_tokens if item.block == BOUNDARY else item.block + 1
            wanted = {scope.content(path[depth], chain, item, e) for e in (0, 1)}
            if not wanted & have:
                name = scope.layout.groups[item.group].name
                raise Broken(f"the offer at {offer.position} comes without {name} of [{item.first_token}...")
        self._check_coupling(path[: offer.position // scope.layout.block_tokens + 1])

    def _check_coupling(self, path: list[int]) -> None:
        for number in path[1:]:
            node = self.state.trees[1].nodes[self.scope.blocks[number]]
            cell = node.cell(1)
            if cell is not None and len(cell.states) > 1 and cell.word(0, COMMIT) != cell.word(1, COMMIT):
                raise Broken(f"block {number} is offered with keys of another commit than its rows")

    def _check_reserved(self, unit: Unit) -> None:
        """Check that what a reservation says is there is there, whatever made room for the rest."""
        tree = self.state.trees[1]
        for item, place in zip(unit.objects, unit.places, strict=True):
            node = tree.nodes.get(unit.node_of(item).hash, tree.root)
            at_end = item.block == BOUNDARY
            cell = node.boundary(1, unit.residue, unit.residue_hash) if at_end else node.cell(1)
            if place is None and (cell is None or not (cell.memory | cell.disk) >> item.slot & 1):
                raise Broken(f"slot {item.slot} of block {item.block} is said to be there, and made room")

    def check_published(self, unit: Unit) -> None:
        """Check that everything of a unit whose commit is acknowledged is there, under its own name."""
        tree, chain = self.state.trees[1], self.scope.residue_numbers[unit.residue_hash]
        for item in unit.objects:
            at = unit.node_of(item).hash
            node = tree.nodes.get(at, tree.root)
            cells = node.cells if item.block != BOUNDARY else node.boundaries
            mine = [c for c in cells if item.block != BOUNDARY or c.residue_hash == unit.residue_hash]
            held = [c.word(item.slot, FP_LOW) for c in mine if (c.memory | c.disk) >> item.slot & 1]
            number = self.scope.block_numbers[at]
            if not {self.scope.content(number, chain, item, e) for e in (0, 1)} & set(held):
                raise Broken(f"slot {item.slot} of block {number} is acknowledged and not there")

    def settled(self, lease: int, offer: int, end: int) -> None:
        """Keep the handles of one offer and of the rows before it."""
        kept = [h for h in self.sides.handles[lease] if h[0] == offer or (h[0] == -1 and h[1] <= end)]
        self.sides.handles[lease] = tuple((0 if h[0] == offer else -1, *h[1:]) for h in kept)

    def tidy(self) -> None:
        """Forget the handles of leases that ended, and the outcomes that nobody waits for."""
        ended = [lease for lease in self.sides.handles if lease not in self.state.leases]
        for lease in ended:
            del self.sides.handles[lease]
        self.state.outcomes.clear()
        self.state.endings.clear()


def check_sides(state: State, sides: Sides) -> list[str]:
    """Return what is wrong with bytes: a lease whose bytes changed, a record that is lost or that nobody owns."""
    found = []
    for lease, handles in sides.handles.items():
        for _, _, arena, offset, content, generation in handles:
            if sides.memory.get((arena, offset)) != content or sides.generations.get((arena, offset)) != generation:
                found.append(f"lease {lease}: the bytes in arena {arena} at {offset} are not those handed out")
    owned: dict[tuple[int, int], int] = {}
    for cell in state.cells.values():
        for slot in range(len(cell.states)):
            if cell.disk >> slot & 1:
                owned[cell.word(slot, 6), cell.word(slot, 7)] = cell.word(slot, 3)
        if cell.manifest is not None:
            owned[cell.manifest[:2]] = MANIFEST
    if owned != sides.disk:
        found.append(f"records {sorted(sides.disk.items())} are on disk, the state owns {sorted(owned.items())}")
    return found


def _split(hashes: bytes) -> list[bytes]:
    return [hashes[i : i + 32] for i in range(0, len(hashes), 32)]
