"""Which layouts a log knows, what is stored under each, and what a group of one costs in bytes, from the log alone."""

from collections import Counter
from pathlib import Path

import msgspec

from kvledger.errors import NotFoundError
from kvledger.geometry import Geometry
from kvledger.kinds import Form
from kvledger.layout import GroupSpec
from kvledgerd.audit.replay import Damage, last_state
from kvledgerd.core.index import Cell
from kvledgerd.core.known_layout import KnownLayout

__all__ = ["GroupCost", "Stored", "find", "group_costs", "stored"]


class Stored(msgspec.Struct):
    """What lies under one layout; an object with copies in both places counts in both.

    Attributes:
        number: Its number in this log.
        digest: Digest of the layout, hexadecimal.
        model: Name of the model.
        weights: Digest of its weights; empty for unnamed ones.
        epoch: State of the weights.
        block_tokens: Tokens of a block.
        groups: Names of its groups.
        objects: Objects in memory.
        memory_bytes: Their bytes.
        disk_objects: Objects on disk.
        disk_bytes: Their bytes, without headers of records.
    """

    number: int
    digest: str
    model: str
    weights: str
    epoch: str
    block_tokens: int
    groups: list[str]
    objects: int = 0
    memory_bytes: int = 0
    disk_objects: int = 0
    disk_bytes: int = 0


class GroupCost(msgspec.Struct, frozen=True):
    """What one group stores.

    Attributes:
        spec: The group as it was declared.
        per: What an object of it belongs to: ``block``, ``page`` or ``boundary``.
        tokens: Tokens that one object stands for; 0 for a boundary's.
        object_bytes: Bytes of one object of one shard.
        shards: Objects side by side.
    """

    spec: GroupSpec
    per: str
    tokens: int
    object_bytes: int
    shards: int


def stored(data: Path, damage: Damage | None = None) -> list[tuple[KnownLayout, Stored]]:
    """Return all layouts of a log with what is stored under each at its end, or at its damage."""
    state = last_state(data, damage)
    if state is None:
        return []
    found = {number: _empty(known) for number, known in state.layouts.items()}
    for cell in state.cells.values():
        _count(found[cell.layout], state.layouts[cell.layout], cell)
    return [(state.layouts[number], one) for number, one in found.items()]


def _empty(known: KnownLayout) -> Stored:
    layout = known.layout
    names = [group.name for group in layout.groups]
    epoch = known.epoch.state.name
    return Stored(
        known.number, layout.digest.hex(), layout.model, layout.weights_digest, epoch, layout.block_tokens, names
    )


def _count(one: Stored, known: KnownLayout, cell: Cell) -> None:
    sizes = Counter[str]()
    for slot in range(len(cell.states)):
        lengths = {"memory": known.length_of(cell, slot), "disk": known.stored_length(cell, slot)}
        for place, mask in (("memory", cell.memory), ("disk", cell.disk)):
            if mask >> slot & 1:
                sizes[place] += lengths[place]
                sizes[f"{place} objects"] += 1
    one.objects += sizes["memory objects"]
    one.memory_bytes += sizes["memory"]
    one.disk_objects += sizes["disk objects"]
    one.disk_bytes += sizes["disk"]


def group_costs(known: KnownLayout) -> list[GroupCost]:
    """Return what each group of a layout stores, in the order of the layout."""
    geometry: Geometry = known.geometry
    per = {Form.ROWS: "block", Form.PAGED_WINDOW: "page", Form.SNAPSHOT: "boundary"}
    tokens = {Form.ROWS: known.layout.block_tokens, Form.SNAPSHOT: 0}
    return [
        GroupCost(spec, per[spec.form], tokens.get(spec.form, spec.page_tokens), geometry.length(i), spec.shards)
        for i, spec in enumerate(known.layout.groups)
    ]


def find(layouts: list[tuple[KnownLayout, Stored]], name: str) -> KnownLayout:
    """Return the layout that a number or the beginning of a digest names.

    Raises:
        NotFoundError: No layout has that name, or several have.
    """
    found = [known for known, one in layouts if name == str(known.number) or (name and one.digest.startswith(name))]
    if len(found) != 1:
        which = f"{len(found)} layouts have" if found else "no layout has"
        remedy = "name it by its number or by more of its digest, as `kvledger layout list` shows them"
        raise NotFoundError(f"{which} the name {name!r}", field="layout", remedy=remedy)
    return found[0]
