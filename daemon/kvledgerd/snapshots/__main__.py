"""The process that makes a snapshot: `python -m kvledgerd.snapshots DATA`; started by the daemon, or by hand.

With `--floor SEQ` it makes the one that stands in for all events up to SEQ, which are going to be retired. With
`--overdue` it does not stand back for other work.
"""

import argparse
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
from kvledgerd.snapshots.origin import make_floor

# The daemon's own work comes first.
_NICENESS: Final = 10


def main() -> int:
    """Make a snapshot if there is anything new, say so, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--floor", type=int, default=None, metavar="SEQ")
    parser.add_argument("--overdue", action="store_true")
    arguments = parser.parse_args()
    if not arguments.overdue:
        os.nice(_NICENESS)
    logs.configure(json=True)
    try:
        if arguments.floor is not None:
            make_floor(arguments.data, arguments.floor)
            return 0
        snapshot = make_snapshot(arguments.data)
    except (LogError, EventError, DigestMismatchError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return exit_of(error)
    sys.stdout.write(f"{snapshot.seq if snapshot is not None else 0}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
