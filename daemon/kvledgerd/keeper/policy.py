"""When the daemon is started again, and when that would be of no use."""

from dataclasses import dataclass

from kvledgerd.keeper.child import CANNOT_RUN

__all__ = ["RestartPolicy"]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When the daemon is started again.

    The first restart comes at once, the next after ``first_s``, then each after twice the delay before, up to
    ``longest_s``. A run of ``steady_s`` makes the next one a first one again.

    Attributes:
        first_s: Seconds before the second restart in a row.
        longest_s: Seconds that are never passed.
        steady_s: Seconds after which a run counts as a good one.
        stop_s: Seconds that a daemon gets to end after a stop signal, before it is killed.
        final_codes: Exit codes after which another start would end the same way: done (0), usage (64), refused
            authority over a damaged log (65), configuration (78), command not to be run (126, 127).
        mended_codes: Those of them whose cause people mend while it lasts: they are not final while there is memory to
            lose.
    """

    first_s: float = 0.1
    longest_s: float = 5.0
    steady_s: float = 10.0
    stop_s: float = 30.0
    final_codes: frozenset[int] = frozenset({0, 64, 65, 78, 126, CANNOT_RUN})
    mended_codes: frozenset[int] = frozenset({78})

    def gives_up(self, code: int, *, holds_memory: bool) -> bool:
        """Tell whether a daemon that ended with ``code`` is not started again."""
        return code in self.final_codes and not (holds_memory and code in self.mended_codes)

    def delay(self, failures: int) -> float:
        """Return the seconds to wait before the restart that follows ``failures`` bad runs in a row (1 or more)."""
        return 0.0 if failures <= 1 else min(self.longest_s, self.first_s * 2.0 ** min(failures - 2, 32))
