"""What a row of the table of settings holds, and how rows of each sort are written."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from kvledgerd.settings.kind_values import KindCaps

__all__ = ["Setting", "bytes_row", "count_row", "kind_of", "kinds_row", "path_row", "switch_row", "word_row"]


class Setting(NamedTuple):
    """One row of the table.

    Attributes:
        name: Key in the file; with KVLEDGER_ before it and in capitals, the environment's name.
        kind: Type of the value: `int`, `bool`, `Path`, `KindCaps`, `KindPrecisions`, `TensorDevice`, `HttpAddress`, an
            enumeration of words, or a list of tables.
        unit: `bytes`, `seconds` or empty; bytes may be written as 64MiB, 1GiB and so on.
        default: Value if nothing is said.
        low: Least value, None if there is none.
        high: Greatest value, None if there is none.
        does: One sentence.
        advice: What to take if unsure, and what more or less costs.
    """

    name: str
    kind: type
    unit: str
    default: Any
    low: int | None
    high: int | None
    does: str
    advice: str


def bytes_row(default: int, low: int, high: int, does: str, advice: str) -> Any:
    """Return the row of a setting: a number of bytes."""
    return _row(default, "bytes", low, high, does, advice)


def count_row(default: int, low: int, high: int, does: str, advice: str, unit: str = "") -> Any:
    """Return the row of a setting: a whole number, of seconds or the like."""
    return _row(default, unit, low, high, does, advice)


def path_row(default: str, does: str, advice: str) -> Any:
    """Return the row of a setting: a path."""
    return word_row(Path(default), does, advice)


def kinds_row(does: str, advice: str) -> Any:
    """Return the row of a setting: caps of kinds; none if nothing is said."""
    return word_row(KindCaps(), does, advice)


def switch_row(does: str, advice: str) -> Any:
    """Return the row of a setting: a switch, off if nothing is said."""
    return word_row(False, does, advice)  # noqa: FBT003  the column has no other name


def word_row(default: Any, does: str, advice: str) -> Any:
    """Return the row of a setting: a value without unit and bounds, such as a word, of the type of its default."""
    return _row(default, "", None, None, does, advice)


def _row(default: Any, unit: str, low: int | None, high: int | None, does: str, advice: str) -> Any:
    """Return the row of a setting: a value of the type of its default."""
    metadata = {"unit": unit, "low": low, "high": high, "does": does, "advice": advice}
    return dataclasses.field(default=default, metadata=metadata)


def kind_of(default: Any) -> type:
    """Return the type of a setting's values."""
    return Path if isinstance(default, Path) else type(default)
