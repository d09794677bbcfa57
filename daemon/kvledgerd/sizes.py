"""Numbers of bytes as people write them."""

from typing import Final

__all__ = ["GIB", "KIB", "MIB", "parse_bytes", "short_bytes"]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
_UNITS: Final = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 1 << 40}


def parse_bytes(text: str) -> int:
    """Return a number of bytes that may be written with a unit: 4096, 64MiB, 1.5GiB.

    Raises:
        ValueError: It is no such number.
    """
    number = text.strip().rstrip("BKMGTibkmgt")
    unit = text.strip()[len(number) :].strip().upper()
    if unit not in _UNITS:
        raise ValueError(f"{unit} is no unit; use KiB, MiB, GiB or TiB")
    return int(float(number) * _UNITS[unit]) if "." in number else int(number) * _UNITS[unit]


def short_bytes(number: int) -> str:
    """Return bytes for people: three digits and a unit."""
    size, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:,.0f} {units[0]}" if units[0] == "B" else f"{size:.3g} {units[0]}"
