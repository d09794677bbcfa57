"""The process that makes a snapshot: `python -m kvledgerd.snapshots DATA`; started by the daemon, or by hand."""

import os
import sys
from pathlib import Path
from typing import Final

from kvledger_storage.events import EventError
from kvledger_storage.log import LogError
from kvledgerd import logs
from kvledgerd.core.apply import DigestMismatchError
from kvledgerd.exits import exit_of
from kvledgerd.snapshots.make import make_snapshot

# The daemon's own work comes first.
_NICENESS: Final = 10


def main(data: Path) -> int:
    """Make a snapshot if there is anything new, say so, and return the exit code."""
    os.nice(_NICENESS)
    logs.configure(json=True)
    try:
        snapshot = make_snapshot(data)
    except (LogError, EventError, DigestMismatchError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return exit_of(error)
    sys.stdout.write(f"{snapshot.seq if snapshot is not None else 0}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
