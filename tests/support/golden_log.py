"""Write a golden log: one small log with every form of event, byte for byte as this version writes it.

Usage: PYTHONPATH=tests python -m support.golden_log

A golden log is written once for each released form and then stays for ever: who changes the form of the log or of an
event adds another and keeps reading the older ones. So this refuses to replace one.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import zlib
from pathlib import Path
from typing import get_args

from kvledger.kinds import Kind
from kvledger_storage.device_events import DevicePoolTaken
from kvledger_storage.disk_events import (
    MANIFEST,
    RecordsDamaged,
    RecordsFound,
    RecordsMoved,
    RestoreOverdue,
    ScrubAdvanced,
    ScrubSwitched,
    TierChanged,
)
from kvledger_storage.events import (
    ArchiveRetired,
    BoundaryRefused,
    Checkpoint,
    DegradationChanged,
    Event,
    IncarnationStopped,
    OffloadFailed,
    PrefixKept,
    QuotaSet,
    Relocated,
    RelocationStarted,
    SegmentsArchived,
    TicketJoined,
    TicketsCommitted,
    WriteDeclined,
    decode,
    encode,
)
from kvledger_storage.log import EventLog
from kvledger_storage.log.segment import FORMAT_VERSION

__all__ = ["DIRECTORY", "FORMS", "read_golden", "unpack"]

DIRECTORY = Path(__file__).parents[1] / "golden"
FORMS = {form.__struct_config__.tag for form in get_args(Event)}
SEGMENT_BYTES = 8192


def read_golden(path: Path) -> dict:
    """Return what a golden file says."""
    return json.loads(path.read_text())


def unpack(golden: dict, directory: Path) -> None:
    """Write the files of a golden log into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, packed in golden["files"].items():
        (directory / name).write_bytes(zlib.decompress(base64.b64decode(packed)))


def every_form() -> list[bytes]:
    """Return one event of every form, from random histories, and by hand where a core without a shell makes none."""
    from property.device_history import DeviceHistory
    from property.test_core_histories import History

    by_hand = [
        Checkpoint(2**63 + 7),
        DevicePoolTaken(14, 3),
        OffloadFailed(77, "the disk is full"),
        WriteDeclined(12, "saves 512 tokens for 4096 bytes, not read since it was stored"),
        PrefixKept(12),
        DegradationChanged("5 restores failed within 60 s"),
        SegmentsArchived(4711, bytes(32)),
        ArchiveRetired(1234, bytes(32), "archive_bytes"),
        BoundaryRefused(2, 1, "nothing can resume at 0"),
        QuotaSet("default", Kind.COMPRESSED_KV, 1 << 30),
        TicketJoined(76, 1, 12),
        TicketsCommitted(76, (1,)),
        RelocationStarted(78, 78, Kind.SWA_WINDOW, ((5, 0), (6, 1)), ((2, 0), (2, 8192)), "room"),
        Relocated(78, ("", "held meanwhile")),
        QuotaSet("default", Kind.SWA_WINDOW, 1 << 20),
        RecordsDamaged(((5, 0, "the file is gone"), (6, MANIFEST, "the file is gone")), "scrub"),
        RecordsFound(1, 9, 0, bytes(64), 3, bytes(32), ((0, 12, bytes(16), 11, 3, 4096, 1),), (3, 16384, 900)),
        RecordsMoved(3, ((5, 0, 4, 8192), (6, MANIFEST, 4, 65536))),
        TierChanged("0000000004.seg: No space left on device"),
        ScrubAdvanced(3, 65536, 12, 1 << 22, (6,)),
        ScrubAdvanced(4, 0, 3, 1 << 20, (), 1_700_000_000_000),
        ScrubSwitched(paused=True, due=False),
        RestoreOverdue(79, "failed: the read did not end within 30 s"),
        IncarnationStopped(3),
    ]
    found, missing = [], set(FORMS) - {event.__struct_config__.tag for event in by_hand}
    for seed in range(100):
        history = (DeviceHistory, History)[seed % 2](seed)
        history.run(160)
        for raw in history.world.log:
            tag = decode(raw).event.__struct_config__.tag
            if tag in missing or not found:
                missing.discard(tag)
                found.append(raw)
        if not missing:
            return [*found, *(encode(event, 1, "daemon") for event in by_hand)]
    raise AssertionError(f"no history has {sorted(missing)}")


def main() -> None:
    """Write the golden log of this version."""
    path = DIRECTORY / f"log-{FORMAT_VERSION}.json"
    if path.exists():
        sys.exit(f"{path} is there, and golden logs are never replaced")
    events = [raw for raw in every_form() for _ in range(3)]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name, "log")
        with EventLog.open(directory, segment_bytes=SEGMENT_BYTES, boot_id=bytes(range(16))) as log:
            writer = log.writer(3, lambda *_: None, lambda _: None)
            for first in range(0, len(events), 4):
                writer.submit([events[first : first + 4]], durable=True)
        files = {
            file.name: base64.b64encode(zlib.compress(file.read_bytes(), 9)).decode()
            for file in sorted(directory.iterdir())
            if file.name in {"id", "mark"} or file.suffix == ".seg"
        }
    content = {"log_id": log.log_id.hex(), "events": [raw.hex() for raw in events], "files": files}
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
