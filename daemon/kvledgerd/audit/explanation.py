"""One verdict explained: which boundaries were looked at, what each group had there, and what cut.

The log keeps what a look-up wanted and what it was answered, not what was stored then. The state just before its event
tells that, so the same judge looks again and reaches the same verdict, with all of its cuts.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from kvledger.errors import CallerError
from kvledger.layout import GroupSpec
from kvledger.verdict import Cut, Layer
from kvledger.wire.requests import Acquire
from kvledger_storage.events import LeaseEnded, LeaseSettled, LookedUp
from kvledgerd.audit.replay import Damage, Moment, moments
from kvledgerd.audit.returns import Returns
from kvledgerd.audit.verdicts import verdicts
from kvledgerd.core.copies.parts import find_parts, path_to
from kvledgerd.core.copies.prefix_state import PrefixState, prefix_state
from kvledgerd.core.index import Node
from kvledgerd.core.kinds import RULES
from kvledgerd.core.kinds.rules import Candidate
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.cuts import shortened
from kvledgerd.core.lookup.look import Look
from kvledgerd.core.lookup.verdict import judge
from kvledgerd.core.structure import find_node

__all__ = ["BoundaryView", "Explanation", "GroupView", "explain", "latest_misses"]

MEMORY, DISK, MISSING, UNKNOWN, NOT_ASKED = "memory", "disk", "missing", "unknown", "not asked"
DEVICE, APPROX, REPLAY, DAMAGED, FOREIGN = "device", "approx", "replay", "damaged", "foreign"


class BoundaryView(msgspec.Struct, frozen=True):
    """One boundary of the prompt.

    Attributes:
        position: Tokens before it.
        residue: How many of them follow the last whole block; it counts only for a prompt with the same tokens.
        outcome: ``kept`` by the client, ``chosen`` as the best block boundary, ``offered`` besides, ``usable`` (but not
            the best), or ``cut``.
        layer: Layer that cut, 0 if none did.
        code: Reason of the cut.
        group: Group that cut, empty if none did.
        prefix: State of the boundary with all that it stands on; told of what was offered, of what keeps something of
            its own, and of the deepest block that is known.
    """

    position: int
    residue: int
    outcome: str
    layer: int = 0
    code: str = ""
    group: str = ""
    prefix: str = ""


class GroupView(msgspec.Struct, frozen=True):
    """One group at each boundary, in their order.

    ``memory``, ``device`` and ``disk`` say from where it alone could resume there, ``approx`` that only an
    approximation would do, ``replay`` that recomputing rebuilds it, ``missing`` that it could not, ``damaged`` that its
    bytes were found wrong, ``foreign`` that another layout keeps these tokens, ``unknown`` that no block with that hash
    is known, ``not asked`` that it is not cacheable.
    """

    name: str
    kind: str
    places: list[str]


class Explanation(msgspec.Struct, frozen=True):
    """A verdict with what was there.

    Attributes:
        seq: Its event.
        time_ms: When, ms since 1970.
        engine: Who asked.
        engine_name: What people call it.
        model: Model of the layout.
        tokens: Length of the prompt.
        block_tokens: Tokens of a block.
        hash_tokens: What a plain hash cache would have claimed.
        usable_tokens: The boundary that the client kept, or else the deepest one that was offered.
        lease: Its lease, 0 on a miss.
        boundaries: Every boundary, ascending.
        groups: Every group of the layout.
        cuts: Why tokens are not usable, longest run first, at most 32.
        cuts_more: Number of further cuts.
    """

    seq: int
    time_ms: int
    engine: int
    engine_name: str
    model: str
    tokens: int
    block_tokens: int
    hash_tokens: int
    usable_tokens: int
    lease: int
    boundaries: list[BoundaryView]
    groups: list[GroupView]
    cuts: list[Cut]
    cuts_more: int


def latest_misses(data: Path, count: int, damage: Damage) -> list[int]:
    """Return the seqs of the latest misses, oldest first.

    Args:
        data: Data directory.
        count: At most so many.
        damage: Where to put the damaged place of a log; misses behind it are not known.

    Raises:
        CallerError: there is none.
    """
    found = [record.seq for record in verdicts(data, last=count, misses=True, damage=damage)]
    if not found and not damage:
        remedy = "name a look-up with --seq; `kvledger audit why` lists them"
        raise CallerError("the log holds no miss", field="last", remedy=remedy)
    return found


def explain(data: Path, seqs: list[int], damage: Damage | None = None) -> list[Explanation]:
    """Explain look-ups, in the order of the log.

    Args:
        data: Data directory.
        seqs: Their events.
        damage: Where to put the damaged place of a log; see `moments`.

    Raises:
        CallerError: an event is no look-up, or is not in the log.
    """
    wanted, found = dict.fromkeys(seqs), list[Explanation]()
    held: dict[int, int] = {}  # lease to its number in `found`, until it was settled or ended
    returns: Returns | None = None
    for moment in moments(data, damage):
        event = moment.event
        returns = returns or Returns(moment.state)
        returns.note(moment.seq - 1)
        if moment.seq in wanted:
            del wanted[moment.seq]
            if not isinstance(event, LookedUp):
                raise _refusal(moment.seq, f"it is {type(event).__name__}, no look-up")
            if event.lease:
                held[event.lease] = len(found)
            found.append(_explained(moment, event, returns))
        elif isinstance(event, LeaseSettled) and event.lease in held:
            number = held.pop(event.lease)
            found[number] = _kept(found[number], moment, event)
        elif isinstance(event, LeaseEnded):
            held.pop(event.lease, None)
        if not wanted and not held:
            break
    if wanted:
        raise _refusal(next(iter(wanted)), "the log has no such event")
    return found


def _kept(one: Explanation, moment: Moment, event: LeaseSettled) -> Explanation:
    """Return an explanation in which the boundary that the client kept is marked."""
    lease = moment.state.leases[event.lease]
    offer = lease.offers[event.offer]
    node = moment.state.nodes.get(offer.node)
    position = (node.depth if node is not None else 0) * one.block_tokens + offer.residue
    boundaries = [replace(b, outcome="kept") if b.position == position else b for b in one.boundaries]
    return replace(one, usable_tokens=position, boundaries=boundaries)


def _refusal(seq: int, why: str) -> CallerError:
    remedy = "name a look-up, as `kvledger audit why` lists them"
    return CallerError(f"event {seq}: {why}", field="seq", remedy=remedy)


def _explained(moment: Moment, event: LookedUp, returns: Returns) -> Explanation:
    scene = _Scene(moment, event, returns)
    who = moment.state.engines.get(event.engine)
    places = scene.places()
    return Explanation(
        moment.seq,
        moment.time_ms,
        event.engine,
        who.name if who is not None else "",
        scene.known.layout.model,
        event.tokens,
        scene.size,
        event.hash_tokens,
        max(scene.offered, default=0),
        event.lease,
        scene.boundaries(places),
        [GroupView(g.name, g.kind.name, row) for g, row in zip(scene.known.layout.groups, places, strict=True)],
        *shortened(scene.cuts),
    )


class _Scene:
    """What a look-up saw: the path that matched, seen with and without the disk, and all candidates."""

    def __init__(self, moment: Moment, event: LookedUp, returns: Returns) -> None:
        self.event = event
        self.returns = returns
        self.known: KnownLayout = moment.state.layouts[event.layout]
        self.size = self.known.layout.block_tokens
        tree = moment.state.trees[event.tree]
        self.path: list[Node] = find_node(moment.state, tree, event.node).path()
        sight = moment.state.sight(event.engine, event.layout)
        self.looks = [(MEMORY, Look(self.known, self.path, use_disk=False))]
        if sight:
            self.looks.append((DEVICE, Look(self.known, self.path, use_disk=False, sight=sight)))
        self.looks.append((DISK, Look(self.known, self.path, use_disk=True, sight=sight)))
        self.looks.append((APPROX, Look(self.known, self.path, use_disk=True, sight=sight, approx=True)))
        self.candidates = sorted(self._candidates(), key=lambda at: at.position)
        judgement = judge(moment.state, self.known, self._request(), sight)
        self.restorable = dict.fromkeys(judgement.restorable)
        self.cuts = judgement.cuts
        nodes = moment.state.nodes
        self.offered = {
            nodes[o.node].depth * self.size + o.residue if o.node else o.residue: None for o in event.offers
        }

    def _candidates(self) -> Iterator[Candidate]:
        number = self.known.number
        for depth, node in enumerate((self.known.tree.root, *self.path)):
            if depth:
                yield Candidate(depth * self.size, depth, node.boundary(number, 0, b""))
            for cell in node.boundaries:
                if cell.layout == number and cell.residue and depth * self.size + cell.residue <= self.event.tokens:
                    yield Candidate(depth * self.size + cell.residue, depth, cell)
        for depth in range(len(self.path) + 1, self.event.tokens // self.size + 1):
            yield Candidate(depth * self.size, depth, None)

    def _request(self) -> Acquire:
        """Return the look-up as it was asked; of what did not match the log knows no hash, and none is needed."""
        unmatched = self.event.tokens // self.size - len(self.path)
        hashes = b"".join(node.hash for node in self.path) + bytes(32) * unmatched
        return Acquire(self.event.layout, self.event.tokens, hashes, **asdict(self.event.wish))

    def places(self) -> list[list[str]]:
        """Return where each group can be had at each candidate."""
        return [[self._place(group, at) for at in self.candidates] for group in range(len(self.known.layout.groups))]

    def _place(self, group: int, at: Candidate) -> str:
        spec = self.known.layout.groups[group]
        if not spec.cacheable:
            return NOT_ASKED
        if at.depth > len(self.path):
            return UNKNOWN
        rules = RULES[spec.kind]
        found = next((name for name, look in self.looks if rules.shortfall(look, group, at) is None), MISSING)
        return self._why_missing(spec, at) if found is MISSING else found

    def _why_missing(self, spec: GroupSpec, at: Candidate) -> str:
        cut = self._cut(at)
        if cut is not None and cut.layer is Layer.IDENTITY:
            return FOREIGN
        if cut is not None and cut.layer is Layer.BYTES and cut.group == spec.name:
            return DAMAGED
        return REPLAY if at.position in self.offered or at.position in self.restorable else MISSING

    def _cut(self, at: Candidate) -> Cut | None:
        """Return the run that says why a candidate fell: of a residue the one that ends there."""
        inside = at.position != at.depth * self.size
        covering = [c for c in self.cuts if c.start < at.position <= c.end]
        return min(covering, key=lambda c: (inside and c.end != at.position, c.end - c.start), default=None)

    def boundaries(self, places: list[list[str]]) -> list[BoundaryView]:
        """Return the outcome at each candidate."""
        outcomes = (self._outcome(at, [row[i] for row in places]) for i, at in enumerate(self.candidates))
        return [replace(one, prefix=self._prefix(at)) for one, at in zip(outcomes, self.candidates, strict=True)]

    def _prefix(self, at: Candidate) -> str:
        if at.depth > len(self.path):
            return ""
        residue = at.position - at.depth * self.size
        if at.cell is None and at.position not in self.offered and (residue or at.depth < len(self.path)):
            return ""
        node = self.path[at.depth - 1] if at.depth else self.known.tree.root
        path = path_to(self.known, node, residue, at.cell)
        was_away = self.returns.are_back(find_parts(self.known, path).found)
        return prefix_state(self.known, path, PrefixState.PARTIAL_OFFLOAD if was_away else None).value

    def _outcome(self, at: Candidate, places: list[str]) -> BoundaryView:
        position, residue = at.position, at.position - at.depth * self.size
        if position in self.offered:
            chosen = position == self.event.usable_tokens and not residue
            return BoundaryView(position, residue, "chosen" if chosen else "offered")
        cut = self._cut(at)
        if cut is not None:
            return BoundaryView(position, residue, "cut", cut.layer.value, cut.code.value, cut.group)
        if position in self.restorable:
            return BoundaryView(position, residue, "usable")
        groups = self.known.layout.groups
        short = next((g for g, place in zip(groups, places, strict=True) if place == MISSING), None)
        return BoundaryView(position, residue, "cut" if short else "usable", group=short.name if short else "")
