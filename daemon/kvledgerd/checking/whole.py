"""Whether a daemon would start on a data directory: its log by the frame and by what they say, and the snapshots.

`kvledger_storage.log.verify` judges frames and knows no state. A daemon also refuses a log whose events do not fit each
other, so they are replayed here the way a start does it, from the newest snapshot that can be used.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kvledger_storage.log import LogRotError, RealLogIO, VerifyReport, verify
from kvledger_storage.log.recovery import Decision
from kvledger_storage.snapshot import SnapshotError, read_snapshots
from kvledgerd.audit.replay import log_directory
from kvledgerd.checking.following import Followed
from kvledgerd.replaying import check_beginning
from kvledgerd.snapshots.choice import SNAPSHOT_DIRECTORY

__all__ = ["Whole", "verify_data"]

# What a start does not meet, and `verify` has judged: without a snapshot this replay began in the archive.
_OF_THE_ARCHIVE: Final = ("read", "archive-damage", "break")


class Whole(NamedTuple):
    """What was found: the report about the log, and for each snapshot that can not be used, why."""

    log: VerifyReport
    snapshots: list[str]


def verify_data(data: Path, progress: Callable[[str], object]) -> Whole:
    """Read and replay everything that a start would, and the archive as well.

    Args:
        data: The data directory.
        progress: Takes a line for people now and then.

    Raises:
        NotFoundError: There is no log.
        LogVersionError: It was written by a newer kvledger.
        EventError: An event is of a newer form.
    """

    def judged(read: int, total: int) -> None:
        progress(f"{100 * read // total} %: {read} of {total} segments read")

    def replayed(seq: int) -> None:
        progress(f"replayed to seq {seq}")

    report = verify(log_directory(data), progress=judged)
    if report.decision == Decision.REFUSE.value:
        return Whole(report, _passed_over(data, report))
    try:
        followed = Followed(data, newest=True, progress=replayed)
        followed.to_end()
        check_beginning(log_directory(data), followed.identity, followed.state)
    except LogRotError as error:
        if error.problem.rule not in _OF_THE_ARCHIVE:
            refused = {"ok": False, "decision": Decision.REFUSE.value, "problem": error.problem}
            report = msgspec.structs.replace(report, **refused)
    return Whole(report, _passed_over(data, report))


def _passed_over(data: Path, report: VerifyReport) -> list[str]:
    found = read_snapshots(RealLogIO(), data / SNAPSHOT_DIRECTORY, bytes.fromhex(report.log_id))
    return [str(one) for one in found if isinstance(one, SnapshotError)] if report.log_id else []
