"""How reading commands end on a damaged log: what is safe was printed, now what is wrong, and 65."""

import sys
from pathlib import Path

from kvledger_storage.log import ARCHIVE_NAME, LogError, Problem, verify
from kvledgerd.audit.replay import Damage
from kvledgerd.exits import Exit

__all__ = ["damaged", "end_of"]


def damaged(problem: Problem) -> int:
    """Say what is wrong with the log, behind everything that was printed; returns the exit code."""
    sys.stdout.flush()
    judged = _judged(problem)
    sys.stderr.write("\n  ".join([f"kvledger: {judged.headline}", *judged.details]) + "\n")
    return Exit.DAMAGED


def _judged(problem: Problem) -> Problem:
    """Return the judgement of the whole log, if all that is known is that reading ended somewhere."""
    if problem.rule != "read":
        return problem
    directory = Path(problem.file).parent
    try:
        found = verify(directory.parent if directory.name == ARCHIVE_NAME else directory).problem
    except (LogError, OSError):
        return problem
    return found or problem


def end_of(damage: Damage) -> int:
    """Return how a command ends that told all before the damage, if there is any."""
    return damaged(damage[0]) if damage else Exit.DONE
