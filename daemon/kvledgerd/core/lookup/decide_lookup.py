"""Decisions about look-ups: verdict and lease in one, and what a lease's owner may ask afterwards."""

from collections.abc import Iterator
from itertools import islice

from kvledger.counts import counted
from kvledger.errors import CallerError, LeaseLost
from kvledger.geometry import bits
from kvledger.verdict import Exactness
from kvledger.wire.replies import Acquired, Described, Done, FingerprintList, ObjectInfo, Offer
from kvledger.wire.requests import Acquire, Describe, Fingerprints, Release, Renew, Settle
from kvledger_storage.events import (
    LeaseEnded,
    LeaseSettled,
    LookedUp,
    OfferRecord,
    Reach,
    Wish,
)
from kvledgerd.core.commands import Ask
from kvledgerd.core.config import DiskWritePolicy
from kvledgerd.core.copies.decide_write import write_later
from kvledgerd.core.copies.parts import boundary_path
from kvledgerd.core.decision import Ack, Decision, Effect
from kvledgerd.core.device_pools.device import Sight
from kvledgerd.core.holdings import Lease
from kvledgerd.core.index import COMMIT, GENERATION, Cell, Copy, cells_along
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.choice import Judged
from kvledgerd.core.lookup.cuts import shortened
from kvledgerd.core.lookup.decide_verification import start_verification
from kvledgerd.core.lookup.handles import Handles, row_objects, row_runs
from kvledgerd.core.lookup.judgement import Judgement
from kvledgerd.core.lookup.lease_room import require_lease_room
from kvledgerd.core.lookup.pace import restore_ms
from kvledgerd.core.lookup.verdict import judge
from kvledgerd.core.lookup.wanted import wanted
from kvledgerd.core.receipts import check_boundary, find_layout, find_lease
from kvledgerd.core.state import State
from kvledgerd.core.transitions import DeviceState

__all__ = [
    "acquire",
    "describe",
    "fingerprints",
    "release",
    "renew",
    "settle",
]

CUTS_LOGGED = 4
DESCRIBED_MAX = 4096


def acquire(state: State, ask: Ask, request: Acquire) -> Decision:
    """Judge a prompt and lease what is usable; what was adopted from an older incarnation is verified first."""
    known = find_layout(state, ask.caller, request.layout)
    if len(request.hashes) % 32 or len(request.hashes) // 32 > request.tokens // known.layout.block_tokens:
        raise CallerError(
            f"{len(request.hashes)} bytes are not the hashes of whole blocks of {request.tokens} tokens",
            field="hashes",
            remedy=f"send 32 bytes for each whole block of {known.layout.block_tokens} tokens, and no more",
        )
    engine = state.engines[ask.caller.engine]
    require_lease_room(state, engine)
    sight = state.sight(engine.number, known.number)
    judgement = judge(state, known, request, sight)
    blocks = _blocks(judgement)
    unverified = _unverified(judgement.offers, blocks, sight)
    if unverified:
        return start_verification(state, unverified)
    matched = len(judgement.path) * known.layout.block_tokens
    chosen = next((o.position for o in judgement.offers if not o.residue), 0)
    handles = Handles(known, blocks, sight)
    reply = Acquired(
        state.serial if judgement.offers else 0,
        [_offer(state, handles, offer) for offer in judgement.offers],
        row_runs(known, blocks, sight),
        judgement.hash_tokens,
        chosen,
        judgement.restorable,
        judgement.coverage,
        wanted(known, request, chosen, matched) if known.epoch.takes_commits(known.layout) else [],
        *shortened(judgement.cuts),
    )
    single = judgement.offers[0] if len(judgement.offers) == 1 else None
    effects = _used_again(state, known, single) if single is not None and single.ready else ()
    return Decision((_event(known, ask, request, judgement, reply),), reply, effects=effects)


def _used_again(state: State, known: KnownLayout, at: Judged) -> tuple[tuple[Ack, Effect], ...]:
    """Return what the second use of a boundary brings about."""
    why = DiskWritePolicy.ON_SECOND_USE
    if why is not state.config.disk_write or (at.cell is not None and at.cell.manifest is not None):
        return ()
    return tuple((Ack.WRITTEN, one) for one in write_later(state, known, (at.node, at.residue, at.residue_hash), why))


def _blocks(judgement: Judgement) -> list[Cell]:
    """Return the block cells up to the deepest ready offer."""
    deepest = max([offer.node.depth for offer in judgement.offers if offer.ready], default=0)
    return [cell for cell in judgement.cells[:deepest] if cell is not None]


def _unverified(offers: list[Judged], blocks: list[Cell], sight: Sight) -> list[Copy]:
    cells = blocks + [o.cell for o in offers if o.ready and o.cell is not None]
    return [(c, s) for c in cells if c.unverified for s in bits(c.unverified & ~sight.mask(c))]


def _offer(state: State, handles: Handles, at: Judged) -> Offer:
    runs = handles.runs(at) if at.ready else []
    cost = (at.to_read, restore_ms(state, at.to_read))
    return Offer(at.position, at.residue, at.residue_hash, at.exactness, at.replay, runs, at.ready, *cost)


def _event(known: KnownLayout, ask: Ask, request: Acquire, judgement: Judgement, reply: Acquired) -> LookedUp:
    last = judgement.path[-1] if judgement.path else known.tree.root
    offers = [
        OfferRecord(o.node.id, o.residue, o.residue_hash, o.replay, o.ready, o.exactness is Exactness.APPROX)
        for o in judgement.offers
    ]
    return LookedUp(
        reply.lease,
        ask.caller.engine,
        known.number,
        known.tree.id,
        last.id,
        request.tokens,
        reply.hash_tokens,
        reply.usable_tokens,
        tuple(offers),
        tuple(reply.cuts[:CUTS_LOGGED]),
        Wish(
            request.leave,
            request.minimum,
            request.align,
            request.restore,
            request.replay,
            request.approx,
            request.recompute,
        ),
        _reach(known, judgement) if judgement.hash_tokens else (),
    )


def _reach(known: KnownLayout, judgement: Judgement) -> tuple[Reach, ...]:
    """Return how far the hash hit was recoverable and ready, in all and by kind; a kind reaches as its groups do."""
    most = judgement.hash_tokens
    ready = max([o.position for o in judgement.offers if o.ready and not o.residue], default=0)
    found = {kind: (kind, most, most) for _, kind in known.group_kinds}
    if min(judgement.coverage) < most or min(judgement.ready) < most:
        for group, kind in known.group_kinds:
            _, recoverable, at_hand = found[kind]
            found[kind] = (kind, min(recoverable, judgement.coverage[group]), min(at_hand, judgement.ready[group]))
    return (0, max(judgement.restorable, default=0), ready), *found.values()


def settle(state: State, ask: Ask, request: Settle) -> Decision:
    """Keep one offer of a lease."""
    lease = find_lease(state, ask.caller, request.lease)
    if request.offer >= len(lease.offers):
        raise CallerError(
            f"the lease has {counted(len(lease.offers), 'offer')}", field="offer", remedy="name one of them, from 0 on"
        )
    known = state.layouts[lease.layout]
    writes = state.config.disk_write is DiskWritePolicy.ON_SECOND_USE
    kept = _judged(state, known, lease)[request.offer] if writes else None
    effects = _used_again(state, known, kept) if kept is not None and kept.ready else ()
    return Decision((LeaseSettled(lease.id, request.offer),), Done(), effects=effects)


def renew(state: State, ask: Ask, request: Renew) -> Decision:
    """Confirm that a lease is held; being heard is all that it takes."""
    find_lease(state, ask.caller, request.lease)
    return Decision(reply=Done())


def release(state: State, ask: Ask, request: Release) -> Decision:
    """End a lease."""
    lease = find_lease(state, ask.caller, request.lease)
    return Decision((LeaseEnded(lease.id, "released"),), Done())


def fingerprints(state: State, ask: Ask, request: Fingerprints) -> Decision:
    """Return the committed fingerprints of everything a lease covers, in the order of its reply.

    Raises:
        LeaseLost: Something of it was stored anew, so its fingerprint is not that of the bytes that were handed out.
    """
    lease = find_lease(state, ask.caller, request.lease)
    known = state.layouts[lease.layout]
    known.epoch.require_usable(known.layout)
    sight = state.lease_sight(lease)
    objects = [
        (cell, slot)
        for group in known.geometry.rows
        for shard in range(known.geometry.groups[group].shards)
        for _, cell, slot in row_objects(known, group, shard, lease.blocks)
    ]
    handles = Handles(known, lease.blocks, sight)
    for at in _judged(state, known, lease):
        objects += [(cell, slot) for _, cell, slot in handles.objects(at)]
    # Receipts and generations are numbers of one row
    if any(c.word(s, GENERATION) > lease.id for c, s in objects if sight.copy(c, s) is None):
        remedy = "look up again; its bytes stay where they are until it is released"
        raise LeaseLost("what it covers was stored anew since", field="lease", remedy=remedy)
    return Decision(reply=FingerprintList(b"".join(_fingerprint(sight, cell, slot) for cell, slot in objects)))


def _fingerprint(sight: Sight, cell: Cell, slot: int) -> bytes:
    """Return 16 bytes: XXH3-128, or of what lies on a device eight zero bytes and its `fp64`, little-endian."""
    found = sight.copy(cell, slot)
    return cell.fingerprint(slot) if found is None else bytes(8) + found[1].fp64.to_bytes(8, "little")


def _judged(state: State, known: KnownLayout, lease: Lease) -> list[Judged]:
    found: list[Judged] = []
    for offer, cell in zip(lease.offers, lease.boundaries, strict=True):
        node = state.nodes.get(offer.node, known.tree.root)
        position = node.depth * known.layout.block_tokens + offer.residue
        rest = (Exactness.APPROX if offer.approx else Exactness.EXACT, offer.replay, offer.ready)
        found.append(Judged(position, node, offer.residue, offer.residue_hash, cell, *rest))
    return found


def describe(state: State, ask: Ask, request: Describe) -> Decision:
    """List what is stored along a path and at its boundary."""
    known = find_layout(state, ask.caller, request.layout)
    at = boundary_path(known, request.at, check_boundary(known, request.at, "at"))
    cells = [cell for cell in (*cells_along(at.path, known.number), at.cell) if cell is not None]
    # Those that are cut off are counted only: a path may hold thousands of times as many
    sight = state.sight(ask.caller.engine, known.number)
    objects = list(islice((info for cell in cells for info in _describe(known, cell, sight)), DESCRIBED_MAX))
    total = sum((cell.memory | cell.disk | sight.mask(cell)).bit_count() for cell in cells)
    return Decision(reply=Described(objects, total - len(objects)))


def _describe(known: KnownLayout, cell: Cell, sight: Sight) -> Iterator[ObjectInfo]:
    slots = known.slots_of(cell)
    block = cell.node.depth - 1 if cell.is_block else -1
    for number in bits(cell.memory | cell.disk | sight.mask(cell)):
        slot, found = slots[number], sight.copy(cell, number)
        pool, copy = found if found is not None else (0, None)
        alone = copy is not None and not (cell.memory | cell.disk) >> number & 1
        yield ObjectInfo(
            cell.id,
            number,
            block,
            slot.group,
            slot.shard,
            slot.page,
            (DeviceState.RESIDENT if alone else cell.state(number)).name,
            known.length_of(cell, number),
            _fingerprint(sight, cell, number) if alone else cell.fingerprint(number),
            copy.commit if copy is not None and alone else cell.word(number, COMMIT),
            cell.pins,
            pool,
            known.stored_length(cell, number) if cell.disk >> number & 1 else 0,
            bool(cell.approx >> number & 1),
        )
