"""Values of several kinds in one setting, written as people say them: `SWA_WINDOW=1GiB, INDEXER_STATE=512MiB`."""

from collections.abc import Iterable
from typing import Self

from kvledger.kinds import Kind
from kvledgerd.core.copies.precisions import Precision, precision_names
from kvledgerd.core.placement.sureness import MEMORY_KINDS
from kvledgerd.sizes import parse_bytes

__all__ = ["KindCaps", "KindPrecisions"]


class KindCaps(str):
    """The text of caps; empty where no kind has one of its own."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Check a text and return it in the usual spelling.

        Raises:
            ValueError: It names no kind, one twice, or something that is no number.
        """
        found = _values(text, Kind)
        if any(parse_bytes(value) < 0 for value in found.values()):
            raise ValueError("a cap is 0 or more")
        return cls(_text(found))

    def amounts(self) -> dict[Kind, int]:
        """Return the cap of each kind that has one."""
        return {kind: parse_bytes(value) for kind, value in _values(self, Kind).items()}


class KindPrecisions(str):
    """The text of precisions on disk (`SWA_WINDOW=int8`); empty where every kind is written as it was committed."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Check a text and return it in the usual spelling.

        Raises:
            ValueError: It names no kind that is kept in memory, one twice, or something that is no precision.
        """
        found = {kind: word.lower() for kind, word in _values(text, MEMORY_KINDS).items()}
        if not {*found.values()} <= {*precision_names()}:
            raise ValueError(f"a precision is {', '.join(precision_names())}")
        return cls(_text(found))

    def precisions(self) -> dict[Kind, Precision]:
        """Return the precision of each kind that has one."""
        return {kind: precision_names()[word] for kind, word in _values(self, MEMORY_KINDS).items()}


def _values(text: str, kinds: Iterable[Kind]) -> dict[Kind, str]:
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    named = {kind.name: kind for kind in kinds}
    found = {name.strip().upper(): value.strip() for name, _, value in parts}
    if len(found) < len(parts) or not found.keys() <= named.keys():
        raise ValueError(f"write KIND=VALUE, each of {', '.join(named)} at most once")
    return {named[name]: value for name, value in found.items()}


def _text(values: dict[Kind, str]) -> str:
    return ", ".join(f"{kind.name}={value}" for kind, value in values.items())
