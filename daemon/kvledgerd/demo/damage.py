"""Damage on purpose: what is stored is made unusable in one way after the other, and each must be refused.

A plain hash cache would hand all of it out, since the tokens are the same each time. Refused means that not one token
of it is used, with the reason that fits; right means that the engine then computes what a cold run does, bit for bit;
mended means that what it stored anew can be used again.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kvledger import Cache
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec
from kvledger.registered import RegisteredLayout
from kvledger.verdict import Code, Cut
from kvledger_storage.disk.pages import PAGE
from kvledger_storage.disk.segments import segment_name
from kvledgerd.audit.replay import replay_all
from kvledgerd.core.copies.records import blob_of
from kvledgerd.demo.compare import same_end
from kvledgerd.demo.engine_process import EngineProcess
from kvledgerd.demo.findings import Refusal
from kvledgerd.demo.messages import Compute, Ran, Serve, Variant
from kvledgerd.demo.prompts import Prompt, cuts_of, tokens_of

__all__ = ["Damage", "Trial", "Victim", "damages", "try_damage"]

_PASSAGE = Prompt.PASSAGE


class Victim(NamedTuple):
    """Where the damage is done: one model's passage.

    Attributes:
        model: Name of the model.
        engine: An engine that serves it.
        cache: Connection of an operator.
        layout: The model's layout, registered with it.
        data: The daemon's data directory.
        cold: What a cold run of the passage gives.
    """

    model: str
    engine: EngineProcess
    cache: Cache
    layout: RegisteredLayout
    data: Path
    cold: Ran

    @property
    def boundary(self) -> int:
        """Where the passage can be resumed when it is sent again, tokens."""
        return cuts_of(_PASSAGE)[0]


class Damage(NamedTuple):
    """One way to make what is stored unusable.

    Attributes:
        what: What is done, for people.
        code: The reason that must be given.
        do: Does it; nothing is done where the engine differs.
        variant: The engine that asks afterwards.
    """

    what: str
    code: Code
    do: Callable[[Victim], object]
    variant: Variant = Variant.USUAL


class Trial(NamedTuple):
    """What came of one damage.

    Attributes:
        damage: What was done.
        refusal: How it was refused, None if it was not.
        detail: The field, object or number behind the reason.
        right: The engine computed what a cold run does.
        mended: What was stored anew can be used again.
    """

    damage: Damage
    refusal: Refusal | None
    detail: str
    right: bool
    mended: bool

    @property
    def problems(self) -> list[str]:
        """What is not as it must be."""
        code = self.refusal.code if self.refusal is not None else "nothing"
        found = [] if code == self.damage.code else [f"refused with {code}, not {self.damage.code.value}"]
        found += [] if self.right else ["the engine then answered wrong"]
        found += [] if self.mended else ["it could not be used again after it was stored anew"]
        return [f"{self.damage.what}: {problem}" for problem in found]


def damages(groups: Sequence[GroupSpec]) -> Iterator[Damage]:
    """Yield what can be damaged in a layout of these groups: each reason once."""
    seen = set[Code]()
    for spec in groups:
        code = _code_of(spec)
        if code not in seen:
            seen.add(code)
            part = "one block of" if spec.form is Form.ROWS else "the state of"
            yield Damage(f"{part} {spec.name} evicted", code, _evicting(spec))
    snapshot = next(spec for spec in groups if spec.form is Form.SNAPSHOT)
    yield Damage(f"a byte of {snapshot.name} flipped on disk", Code.BYTES_DAMAGED, _flipping(snapshot.name))
    yield Damage("asked for by another kernel ABI", Code.ABI_MISMATCH, _nothing, Variant.OTHER_ABI)
    yield Damage("asked for by a model of other weights", Code.IDENTITY_MISMATCH, _nothing, Variant.OTHER_WEIGHTS)


def try_damage(victim: Victim, damage: Damage) -> Trial:
    """Do damage, and look at what the engine is given, answers and stores then."""
    damage.do(victim)
    ran = victim.engine.ask(Serve(victim.model, _PASSAGE, damage.variant))
    cut = _reason(ran.cuts, victim.boundary)
    refused = cut is not None and ran.reused < victim.boundary
    refusal = Refusal.of(cut, ran.hash_tokens, ran.reused) if cut is not None and refused else None
    cold = victim.cold
    if damage.variant is Variant.OTHER_WEIGHTS:
        cold = victim.engine.ask(Compute(victim.model, _PASSAGE, cuts_of(_PASSAGE), damage.variant))
    again = victim.engine.ask(Serve(victim.model, _PASSAGE, damage.variant))
    mended = again.reused == victim.boundary and same_end(again, cold)
    return Trial(damage, refusal, cut.detail if cut is not None else ran.why, same_end(ran, cold), mended)


def _reason(cuts: Sequence[Cut], boundary: int) -> Cut | None:
    """Return why a boundary fell: the cut that ends there, else the longest that is not the caller's own wish."""
    told = [cut for cut in cuts if cut.code is not Code.LEAVE]
    return next((cut for cut in told if cut.end == boundary), next(iter(told), None))


def _code_of(spec: GroupSpec) -> Code:
    if spec.kind is Kind.UNCOMPRESSED_TAIL:
        return Code.HALO_MISSING if spec.halo_rows else Code.TAIL_MISSING
    codes = {
        Kind.COMPRESSED_KV: Code.ROWS_MISSING,
        Kind.SWA_WINDOW: Code.WINDOW_MISSING,
        Kind.INDEXER_STATE: Code.INDEXER_MISSING,
    }
    return codes[spec.kind]


def _nothing(victim: Victim) -> None:
    del victim


def _evicting(spec: GroupSpec) -> Callable[[Victim], object]:
    block = 1 if spec.form is Form.ROWS else -1

    def evict(victim: Victim) -> object:
        tokens, at = tokens_of(_PASSAGE), victim.boundary
        return victim.cache.evict(
            victim.layout, tokens, kind=spec.kind, boundary=at, group=spec.name, block=block, disk=True
        )

    return evict


def _flipping(group: str) -> Callable[[Victim], object]:
    def flip(victim: Victim) -> None:
        tokens, at = tokens_of(_PASSAGE), victim.boundary
        victim.cache.offload(victim.layout, tokens, boundary=at, drop_memory=True)
        index = [spec.name for spec in victim.layout.layout.groups].index(group)
        told = victim.cache.describe(victim.layout, tokens, boundary=at).objects
        found = next(item for item in told if item.block == -1 and item.group == index)
        _flip_on_disk(victim.data, found.cell, found.slot)

    return flip


def _flip_on_disk(data: Path, number: int, slot: int) -> None:
    """Flip one bit in the middle of an object's record; the log tells where it lies."""
    state, _ = replay_all(data)
    cell = state.cells[number]
    ref = blob_of(state.layouts[cell.layout], cell, slot)
    # The record begins with a header page
    at = ref.offset + PAGE + ref.length // 2
    with (data / "data" / segment_name(ref.segment)).open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
