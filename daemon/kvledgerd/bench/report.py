"""The table that people read: one line for each row, and below it what each row stands beside."""

from collections.abc import Sequence

from kvledgerd.bench.figures import Figure, Spread
from kvledgerd.output import say, table

__all__ = ["show"]

_COLUMNS = ("row", "value", "beside", "unit", "ratio", "least", "most", "goal", "met")
_NUMBERS = frozenset({"value", "beside", "ratio", "least", "most", "goal"})


def show(figures: Sequence[Figure], spreads: Sequence[Spread]) -> None:
    """Print the table.

    Args:
        figures: The rows.
        spreads: What each was made from, in the same order.
    """
    rows = [_cells(figure, spread) for figure, spread in zip(figures, spreads, strict=True)]
    table("", _COLUMNS, rows, _NUMBERS)
    beside: dict[str, list[str]] = {}
    for spread in spreads:
        beside.setdefault(spread.peer, []).append(spread.name)
    for peer, names in beside.items():
        say(f"beside {', '.join(names)}: {peer}")


def _cells(figure: Figure, spread: Spread) -> tuple[str, ...]:
    met = "" if figure.met is None else "yes" if figure.met else "no"
    ratios = [f"{ratio:.2f}" for ratio in (figure.ratio, spread.ratio_min, spread.ratio_max)]
    return (figure.name, _rounded(figure.value), _rounded(figure.beside), figure.unit, *ratios, figure.goal or "", met)


def _rounded(number: float) -> str:
    """Return a number with three digits that count, never as a power of ten."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
