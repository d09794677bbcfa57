"""What a row of the table holds, and how it follows from pairs of measurements.

A machine is never quiet, and what disturbs it changes from second to second. So nothing is judged from one number:
every row measures the cache and its floor or peer in turns, and the ratio is the median of the ratios of neighbours.
"""

import enum
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import msgspec

__all__ = ["Figure", "Goal", "Measured", "Pair", "Sense", "Spread", "figure_of", "spread_of"]


class Sense(enum.StrEnum):
    """On which side of its bound a ratio should lie."""

    AT_MOST = "<="
    AT_LEAST = ">="


class Goal(NamedTuple):
    """What the design asks of a ratio."""

    sense: Sense
    bound: float

    def __str__(self) -> str:
        return f"{self.sense} {self.bound:g}"

    def is_met(self, ratio: float) -> bool:
        """Tell whether a ratio lies on the right side."""
        return ratio <= self.bound if self.sense is Sense.AT_MOST else ratio >= self.bound


class Pair(NamedTuple):
    """The cache and its peer, measured one right after the other, in the unit of the row."""

    ours: float
    beside: float

    @property
    def ratio(self) -> float:
        """The cache's number in terms of its peer's."""
        return self.ours / self.beside


class Measured(NamedTuple):
    """One row before it is summed up.

    Attributes:
        name: Name of the row.
        unit: Unit of both numbers.
        peer: What stands beside the cache.
        goal: What the design asks, None for a row that only informs.
        pairs: The measurements, in the order in which they were made.
    """

    name: str
    unit: str
    peer: str
    goal: Goal | None
    pairs: Sequence[Pair]


class Figure(msgspec.Struct, frozen=True):
    """One row as programs read it; the fields are those of the design's section 10.

    Attributes:
        name: Name of the row.
        value: The cache, median.
        unit: Unit of `value` and `beside`.
        beside: The floor or peer, median.
        ratio: Median of the ratios of neighbouring measurements.
        goal: Sense and bound, for example ``<= 2.5``; None for a row that only informs.
        met: Whether the ratio meets the goal; None where there is none.
    """

    name: str
    value: float
    unit: str
    beside: float
    ratio: float
    goal: str | None
    met: bool | None


class Spread(msgspec.Struct, frozen=True):
    """What one figure was made from, for the file that keeps the measurements.

    Attributes:
        name: Name of the row.
        peer: What stands beside the cache.
        ratio_min: Least ratio of neighbours.
        ratio_max: Greatest ratio of neighbours.
        ours: The cache, measurement by measurement.
        beside: The peer, measurement by measurement.
    """

    name: str
    peer: str
    ratio_min: float
    ratio_max: float
    ours: list[float]
    beside: list[float]


def figure_of(row: Measured) -> Figure:
    """Return the medians of a row."""
    ratio = median(pair.ratio for pair in row.pairs)
    value, beside = median(pair.ours for pair in row.pairs), median(pair.beside for pair in row.pairs)
    goal, met = (None, None) if row.goal is None else (str(row.goal), row.goal.is_met(ratio))
    return Figure(row.name, value, row.unit, beside, ratio, goal, met)


def spread_of(row: Measured) -> Spread:
    """Return how far the measurements of a row lie apart."""
    ratios = [pair.ratio for pair in row.pairs]
    ours, beside = [pair.ours for pair in row.pairs], [pair.beside for pair in row.pairs]
    return Spread(row.name, row.peer, min(ratios), max(ratios), ours, beside)
