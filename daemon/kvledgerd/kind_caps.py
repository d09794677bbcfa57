"""Caps of several kinds in one setting, written as people say them: `SWA_WINDOW=1GiB, INDEXER_STATE=512MiB`."""

from typing import Self

from kvledger.kinds import Kind
from kvledgerd.sizes import parse_bytes

__all__ = ["KindCaps"]


class KindCaps(str):
    """The text of such a setting; empty where no kind has a cap of its own."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Check a text and return it in the usual spelling.

        Raises:
            ValueError: It names no kind, one twice, or something that is no number.
        """
        parts = [part.partition("=") for part in text.split(",") if part.strip()]
        found = {Kind[name.strip().upper()]: value.strip() for name, _, value in parts if _known(name)}
        if len(found) < len(parts) or any(parse_bytes(value) < 0 for value in found.values()):
            raise ValueError(f"write KIND=NUMBER, each of {', '.join(kind.name for kind in Kind)} at most once")
        return cls(", ".join(f"{kind.name}={value}" for kind, value in found.items()))

    def amounts(self) -> dict[Kind, int]:
        """Return the cap of each kind that has one."""
        parts = (part.partition("=") for part in self.split(", ") if part)
        return {Kind[name]: parse_bytes(value) for name, _, value in parts}


def _known(name: str) -> bool:
    return name.strip().upper() in Kind.__members__
