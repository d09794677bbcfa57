"""The sorts of work that the tensor process does; both sides read this one table.

A conversion is an effect of the core and its answer a command, as they are; what threads of the shell want done has
messages of its own. So what the process is told is typed, and a new sort of work is one more row.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kvledger_storage.arena import Arena
from kvledgerd.core.commands import Converted
from kvledgerd.core.decision import ConvertSlots
from kvledgerd.tensors.slot_messages import DequantisedSlot, DequantiseSlot, QuantisedSlot, QuantiseSlot

__all__ = ["SORTS", "Sort", "sort_of"]

Act = Callable[[Any, Mapping[int, Arena], Any], Any]


class Sort(NamedTuple):
    """One sort of work.

    Attributes:
        name: In messages and metrics.
        effect: What asks for it.
        answer: What it answers with.
        slots: Yields arena and bytes of all that one effect reads and writes.
        load: Returns what does it: (effect, arenas, device) to answer. Only the tensor process calls it, since what it
            loads is what the daemon does without.
    """

    name: str
    effect: type
    answer: type
    slots: Callable[[Any], Iterator[tuple[int, int]]]
    load: Callable[[], Act]


def _convert_slots(effect: ConvertSlots) -> Iterator[tuple[int, int]]:
    for one in effect.objects:
        yield one.arena, one.length
        yield one.target_arena, one.target_length


def _convert() -> Act:
    from kvledgerd.tensors.conversions import convert  # noqa: PLC0415 - the daemon itself works on no tensor

    return convert


def _slot(effect: QuantiseSlot | DequantiseSlot) -> Iterator[tuple[int, int]]:
    yield effect.arena, effect.length
    yield effect.arena, effect.how.length


def _quantise() -> Act:
    from kvledgerd.tensors.lossy import quantise  # noqa: PLC0415 - as above

    return quantise


def _dequantise() -> Act:
    from kvledgerd.tensors.lossy import dequantise  # noqa: PLC0415 - as above

    return dequantise


_ALL: Final = (
    Sort("convert", ConvertSlots, Converted, _convert_slots, _convert),
    Sort("quantise", QuantiseSlot, QuantisedSlot, _slot, _quantise),
    Sort("dequantise", DequantiseSlot, DequantisedSlot, _slot, _dequantise),
)
SORTS: Final = {sort.name: sort for sort in _ALL}
"""Name to sort."""

_BY_EFFECT: Final = {sort.effect: sort for sort in SORTS.values()}


def sort_of(effect: object) -> Sort:
    """Return the sort of work that an effect asks for."""
    return _BY_EFFECT[type(effect)]
