"""Which snapshots a data directory keeps, told by their names alone."""

from pathlib import Path

from kvledger_storage.log import RealLogIO
from kvledger_storage.snapshot import snapshot_names
from kvledgerd.snapshots.choice import SNAPSHOT_DIRECTORY

__all__ = ["kept_seqs"]


def kept_seqs(data: Path) -> list[int]:
    """Return the last seqs of the snapshots that starts begin with, newest first."""
    return [int(name[:20]) for name in snapshot_names(RealLogIO(), data / SNAPSHOT_DIRECTORY)]
