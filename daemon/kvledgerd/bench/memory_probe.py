"""What a replayed log takes in memory, found out in a process of its own in which nothing else is.

Replayed and settled as a daemon does it; what is counted is what the system has given to the process.
"""

import sys
from pathlib import Path

import msgspec

from kvledger_storage.log import EventLog
from kvledgerd import logs
from kvledgerd.collector import keep_for_good
from kvledgerd.core.config import CAPLESS
from kvledgerd.core.state import State
from kvledgerd.life.recovery import replay

__all__ = ["Probed"]


class Probed(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        objects: Objects in the state.
        blocks: Blocks in the state.
        bytes: By how much the process grew, resident.
    """

    objects: int
    blocks: int
    bytes: int


def _resident_bytes() -> int:
    """Return what of this process is in memory, once it has settled."""
    keep_for_good()
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10


def _main() -> None:
    logs.configure(json=True)
    state = State(CAPLESS)
    with EventLog.open(Path(sys.argv[1])) as log:
        before = _resident_bytes()
        replay(log, state, lambda _: None)
        found = Probed(state.objects, len(state.nodes), _resident_bytes() - before)
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")


if __name__ == "__main__":
    _main()
