"""What the explorer puts in place of what the core learns about reuse: nothing is learnt.

States that differ in what was seen so far alone would never meet, and no scope could be exhausted. So the explorer
looks at the orders as they are before memory is short, in which no choice depends on a clock; that learning keeps
every promise is shown by random histories, which run into full memory all the time.
"""

from kvledgerd.core.placement.reuse import Reuse

__all__ = ["Unlearning"]


class Unlearning(Reuse):
    """Knows nothing, for ever."""

    __slots__ = ()

    def see(self, key: int) -> int:
        """Notes nothing."""
        del key
        return 0

    @property
    def active(self) -> bool:
        """Never: whatever is told."""
        return False

    @active.setter
    def active(self, told: bool) -> None:
        pass
