"""What every page has around it: where its numbers come from, and how far behind they are."""

from typing import NamedTuple

__all__ = ["Frame"]


class Frame(NamedTuple):
    """The top and bottom of a page.

    Attributes:
        path: Its path, for the navigation.
        told: Event as of which the audit database answered, None if it did not.
        seq: Last event of the daemon, None if it does not answer.
        incarnation: Its run, None if it does not answer.
        why_not: Why the daemon does not answer, empty if it does.
    """

    path: str
    told: int | None = None
    seq: int | None = None
    incarnation: int | None = None
    why_not: str = ""

    @property
    def behind(self) -> int:
        """Events that the daemon has decided and the audit database does not hold yet."""
        return max(self.seq - self.told, 0) if self.seq is not None and self.told is not None else 0
