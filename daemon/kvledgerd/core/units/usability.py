"""Whether a look-up could use the boundary that a unit makes: checked when it is reserved, and again when it commits.

A writer that stores what no reader can use costs the writing and never gives a hit, and nobody notices: so such a unit
is refused with the reason, and counted (`stored_unusable`). What a unit itself brings is complete by construction,
since writer and reader derive it from one `Geometry`: pages for the window and for speculation, halo, tails, rows of
the residue. Left to check is where it ends, and what it stands on and does not bring.
"""

from collections.abc import Callable
from typing import NoReturn

from kvledger.errors import CommitRefusedError
from kvledger.geometry import UnitObject
from kvledgerd.core.holdings import Unit
from kvledgerd.core.index import Cell, Node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.units.apply_units import cells_of

__all__ = ["Has", "UnusableError", "check_end", "check_rows_before", "check_still_there", "describe", "stored"]

Has = Callable[[Cell], int]
"""From a cell to the mask of its slots that the asking engine can build on."""


def stored(cell: Cell) -> int:
    """Return the mask of what everybody could build on."""
    return cell.memory | cell.disk


class UnusableError(CommitRefusedError):
    """No look-up could resume at the boundary of this unit.

    Attributes:
        layout: Number of its layout.
    """

    def __init__(self, known: KnownLayout, message: str, *, field: str, remedy: str) -> None:
        super().__init__(message, field=field, remedy=remedy)
        self.layout = known.number


def check_end(known: KnownLayout, end: int) -> None:
    """Refuse an end at which a group stands in the middle of what it stores as a unit."""
    if not end:
        raise UnusableError(known, "nothing can resume at 0", field="end", remedy="end the unit behind a token")
    uneven = known.geometry.uneven_group(end)
    if uneven is not None:
        spec, unit = known.geometry.groups[uneven], known.geometry.unit_tokens(uneven)
        raise UnusableError(
            known,
            f"no look-up could resume at {end}: {spec.name} ({spec.kind.name}) keeps units of {unit} tokens",
            field="end",
            remedy="end the unit where every group ends a unit or has its tail",
        )


def check_rows_before(known: KnownLayout, path: list[Node], first_block: int, has: Has) -> None:
    """Refuse a reservation whose earlier rows are neither in it nor stored, or whose keys index other rows."""
    found = _lacking(known, path, first_block, has)
    if found is not None:
        name, block = found
        raise UnusableError(
            known,
            f"no look-up could use it: {name} lacks the rows of block {block}",
            field="first_block",
            remedy=f"let the unit start at block {block}",
        )


def check_still_there(known: KnownLayout, unit: Unit) -> None:
    """Refuse a commit if something that it stands on is gone since the reservation; the pins make that rare."""
    there = [item for item, place in zip(unit.objects, unit.places, strict=True) if place is None]
    cells = cells_of(known, unit, there)
    for item in there:
        cell = cells.get(item.block)
        if cell is None or not stored(cell) >> item.slot & 1:
            _refuse_gone(known, unit, f"{describe(known, item)} was there and is gone")
    found = _lacking(known, unit.path, unit.first_block, stored) if unit.boundary else None
    if found is not None:
        _refuse_gone(known, unit, f"{found[0]} lost the rows of block {found[1]}")


def describe(known: KnownLayout, item: UnitObject) -> str:
    """Return an object's name for people: its group, shard and tokens."""
    spec = known.geometry.groups[item.group]
    end = item.first_token + item.tokens
    where = f"of [{item.first_token}, {end})" if item.tokens else f"at {item.first_token}"
    return f"{spec.name} ({spec.kind.name}) shard {item.shard} {where}"


def _lacking(known: KnownLayout, path: list[Node], blocks: int, has: Has) -> tuple[str, int] | None:
    """Return the first group and block whose rows are not there, None if all are."""
    for block in range(blocks):
        cell = path[block].cell(known.number) if block < len(path) else None
        have = has(cell) & ~cell.uncoupled if cell is not None else 0
        for group in known.geometry.rows if ~have & known.rows_mask else ():
            if ~have & known.geometry.block_masks[group]:
                spec = known.geometry.groups[group]
                return f"{spec.name} ({spec.kind.name})", block
    return None


def _refuse_gone(known: KnownLayout, unit: Unit, message: str) -> NoReturn:
    remedy = "abort and reserve again"
    if unit.boundary:
        raise UnusableError(known, message, field="unit", remedy=remedy)
    raise CommitRefusedError(message, field="unit", remedy=remedy)
