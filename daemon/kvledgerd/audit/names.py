"""Names of objects, as commands take them and answers print them."""

from typing import NamedTuple

from kvledger.errors import CallerError

__all__ = ["ObjectName", "parse_name"]


class ObjectName(NamedTuple):
    """An object's number: its cell and its slot in it."""

    cell: int
    slot: int

    def __str__(self) -> str:
        """Return the name as commands take it."""
        return f"{self.cell}.{self.slot}"


def parse_name(text: str) -> ObjectName:
    """Return the object that ``<cell>.<slot>`` names.

    Raises:
        CallerError: the text is no name of an object.
    """
    cell, _, slot = text.partition(".")
    if not (cell.isdecimal() and slot.isdecimal() and max(len(cell), len(slot)) < 19):
        remedy = "name it <cell>.<slot>, as `kvledger audit objects` lists them"
        raise CallerError(f"{text!r} names no object", field="object", remedy=remedy)
    return ObjectName(int(cell), int(slot))
