"""The append-only log: one file for each job, and these names for everyone else."""

from kvledger_storage.log.archive import ARCHIVE_NAME
from kvledger_storage.log.beginning import Anchor, Beginning
from kvledger_storage.log.creation import Quarantine
from kvledger_storage.log.errors import (
    EventRefusedError,
    FrameError,
    LogClosedError,
    LogError,
    LogLockedError,
    LogRotError,
    LogStoppedError,
    LogVersionError,
    Problem,
)
from kvledger_storage.log.frame import FrameHeader
from kvledger_storage.log.identity import Identity, Predecessor
from kvledger_storage.log.io import LogIO, RealLogIO
from kvledger_storage.log.lock import log_locked
from kvledger_storage.log.reader import LoggedEvent, read_events
from kvledger_storage.log.repair import TailRepair
from kvledger_storage.log.store import EventLog, set_aside
from kvledger_storage.log.verify import VerifyReport, damage_at_end, verify
from kvledger_storage.log.writer import LogStatistics, LogWriter

__all__ = [
    "ARCHIVE_NAME",
    "Anchor",
    "Beginning",
    "EventLog",
    "EventRefusedError",
    "FrameError",
    "FrameHeader",
    "Identity",
    "LogClosedError",
    "LogError",
    "LogIO",
    "LogLockedError",
    "LogRotError",
    "LogStatistics",
    "LogStoppedError",
    "LogVersionError",
    "LogWriter",
    "LoggedEvent",
    "Predecessor",
    "Problem",
    "Quarantine",
    "RealLogIO",
    "TailRepair",
    "VerifyReport",
    "damage_at_end",
    "log_locked",
    "read_events",
    "set_aside",
    "verify",
]
