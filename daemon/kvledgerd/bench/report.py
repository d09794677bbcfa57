"""The table that people read: one line for each row, and below it what each row stands beside."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from kvledgerd.bench.figures import Figure, Spread

__all__ = ["show"]

# A pipe has no width of its own; the table is as wide as it needs to be.
_WIDE = 160
_COLUMNS = ("row", "value", "beside", "unit", "ratio", "least", "most", "goal", "met")
_NUMBERS = frozenset({"value", "beside", "ratio", "least", "most", "goal"})


def show(figures: Sequence[Figure], spreads: Sequence[Spread]) -> None:
    """Print the table.

    Args:
        figures: The rows.
        spreads: What each was made from, in the same order.
    """
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    table = Table()
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _NUMBERS else "left")
    for figure, spread in zip(figures, spreads, strict=True):
        table.add_row(*_cells(figure, spread))
    console.print(table)
    beside: dict[str, list[str]] = {}
    for spread in spreads:
        beside.setdefault(spread.peer, []).append(spread.name)
    for peer, names in beside.items():
        console.print(f"beside {', '.join(names)}: {peer}")


def _cells(figure: Figure, spread: Spread) -> tuple[str, ...]:
    met = "" if figure.met is None else "yes" if figure.met else "no"
    ratios = [f"{ratio:.2f}" for ratio in (figure.ratio, spread.ratio_min, spread.ratio_max)]
    return (figure.name, _rounded(figure.value), _rounded(figure.beside), figure.unit, *ratios, figure.goal or "", met)


def _rounded(number: float) -> str:
    """Return a number with three digits that count, never as a power of ten."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
