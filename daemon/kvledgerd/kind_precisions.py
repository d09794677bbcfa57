"""Precisions of kinds on disk in one setting, written as people say them: `COMPRESSED_KV=e4m3, SWA_WINDOW=int8`."""

from typing import Self

from kvledger.kinds import Kind
from kvledgerd.core.copies.precisions import Precision, precision_names
from kvledgerd.core.placement.sureness import MEMORY_KINDS

__all__ = ["KindPrecisions"]


class KindPrecisions(str):
    """The text of such a setting; empty where every kind is written as it was committed."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Check a text and return it in the usual spelling.

        Raises:
            ValueError: It names no kind that is kept in memory, one twice, or something that is no precision.
        """
        parts = [part.partition("=") for part in text.split(",") if part.strip()]
        named = {kind.name: kind for kind in MEMORY_KINDS}
        found = {name.strip().upper(): word.strip().lower() for name, _, word in parts}
        if len(found) < len(parts) or not found.keys() <= named.keys() or not {*found.values()} <= {*precision_names()}:
            raise ValueError(f"write KIND=PRECISION, each of {', '.join(named)} at most once")
        return cls(", ".join(f"{name}={word}" for name, word in found.items()))

    def precisions(self) -> dict[Kind, Precision]:
        """Return the precision of each kind that has one."""
        parts = (part.partition("=") for part in self.split(", ") if part)
        return {Kind[name]: precision_names()[word] for name, _, word in parts}
