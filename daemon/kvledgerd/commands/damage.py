"""How reading commands end on a damaged log: what is safe was printed, now what is wrong, and 65."""

import sys

from kvledger_storage.log import LogRotError, Problem
from kvledgerd.audit.replay import Damage
from kvledgerd.exits import Exit

__all__ = ["damaged", "end_of"]


def damaged(problem: Problem) -> int:
    """Say what is wrong with the log, behind everything that was printed; returns the exit code."""
    sys.stdout.flush()
    sys.stderr.write(f"kvledger: {LogRotError(problem)}\n")
    return Exit.DAMAGED


def end_of(damage: Damage) -> int:
    """Return how a command ends that told all before the damage, if there is any."""
    return damaged(damage[0]) if damage else Exit.DONE
