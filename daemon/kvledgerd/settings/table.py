"""The table of settings: name, type, default, bounds, what each does and what to take if unsure.

Everything that has to do with configuration is made from it: reading the file and the environment, the refusals, and
the printed form. Its first rows, about what the cache is, stand in `kvledgerd.settings.cache_rows`; these are about how
the daemon does its work.
"""

import dataclasses
from dataclasses import dataclass
from typing import Final

from kvledgerd.settings.cache_rows import CacheSettings
from kvledgerd.settings.rows import Setting, bytes_row, count_row, kind_of, switch_row, word_row
from kvledgerd.sizes import GIB, KIB, MIB
from kvledgerd.tensor_device import TensorDevice
from kvledgerd.web.address import HttpAddress

__all__ = ["SETTINGS", "Config", "Setting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(CacheSettings):
    """All settings of a daemon. The attributes are the rows of `SETTINGS`."""

    log_segment_bytes: int = bytes_row(
        16 * MIB,
        64 * KIB,
        GIB,
        "Size of one segment of the log.",
        "Leave it; small ones are for tests.",
    )
    quarantine_log: bool = switch_row(
        "Set a damaged log aside and begin a new one that names it.",
        "Leave it; use --on-corrupt=quarantine for the one start that needs it: everything cached is forgotten.",
    )
    exit_on_damage: bool = switch_row(
        "End with exit code 65 over a damaged log, instead of holding the memory and refusing everybody.",
        "Leave it: memory that is let go of can not be used again when the log is mended.",
    )
    snapshot_events: int = count_row(
        1_000_000,
        0,
        1 << 62,
        "Events of the log between two snapshots, which spare a start their replay; 0 makes none.",
        "Leave it: a million events take some five seconds to replay.",
        "events",
    )
    archive_bytes: int = bytes_row(
        64 * GIB,
        0,
        1 << 56,
        "Most bytes of archived segments of the log; the oldest are retired beyond it, and sooner on a full disk.",
        "As much as the past that audit is asked about: some 100 bytes for each look-up, more for each commit.",
    )
    disk_segment_bytes: int = bytes_row(
        256 * MIB,
        64 * KIB,
        1 << 40,
        "Size of one file of disk records.",
        "Leave it; never more than a 16th of disk_bytes, of which writes leave one file's worth to the cleaner.",
    )
    scrub_bytes_per_second: int = bytes_row(
        32 * MIB,
        64 * KIB,
        1 << 40,
        "Most bytes a second that the scrubber reads while it verifies what lies on disk.",
        "A tenth of what the drive reads or less; disk_bytes divided by it is how long a pass takes.",
    )
    scrub_seconds: int = count_row(
        86_400,
        0,
        1 << 24,
        "From the end of one pass of the scrubber to the begin of the next; 0 makes none but those that are asked for.",
        "A day; damage that nobody reads is found within that time and a pass.",
        "seconds",
    )
    ring_bytes: int = bytes_row(
        GIB,
        64 * KIB,
        1 << 40,
        "Greatest staging ring of one connection.",
        "A few times the largest object.",
    )
    staging_bytes: int = bytes_row(
        64 * GIB,
        64 * KIB,
        64 << 40,
        "What the staging rings of all connections of one tenant may have together.",
        "Connections that write at the same time, times the ring that engines open (64 MiB if nothing is said).",
    )
    max_objects: int = count_row(
        1 << 24,
        1,
        1 << 32,
        "Objects that may exist at the same time.",
        "Leave it; it bounds the daemon's own memory.",
    )
    topology_percent: int = count_row(
        50,
        0,
        100,
        "Share of memory_bytes that topologies, which are what captured graphs read in place, may pin.",
        "What other engines can do without: only the owner of a topology, or its end, gives its memory back.",
        "percent",
    )
    compact_percent: int = count_row(
        50,
        0,
        100,
        "Free share of a kind's memory beyond which the objects of its emptiest arena move to the others; 0 for never.",
        "Leave it: an arena that was emptied can become one of another kind.",
        "percent",
    )
    allow_unpinned: bool = switch_row(
        "Let layouts leave their weights unnamed; what an engine stores under one ends with it and is its alone.",
        "Leave it, and name the weights; it is for experiments with weights that change all the time.",
    )
    copy_workers: int = count_row(
        2,
        1,
        64,
        "Threads that copy, and hash what they copied.",
        "One for each 5 GiB/s that engines hand in, at most half the cores.",
    )
    read_workers: int = count_row(
        2,
        1,
        64,
        "Threads that read from disk, for each kind.",
        "2 for one drive, 4 for several.",
    )
    tensor_device: TensorDevice = word_row(  # noqa: RUF009  a field, made by the row's helper
        TensorDevice("cpu"),
        "Where a process beside the daemon works on tensors: cpu, or a GPU as torch names it (cuda:0).",
        "Leave it; a GPU needs kvledger[gpu] and devices that the daemon's unit may open, and is refused if it lacks.",
    )
    tensor_seconds: int = count_row(
        30,
        1,
        3600,
        "How long one job on tensors of up to 1 GiB may take before its process is ended; larger ones have more.",
        "Leave it: it is for a process that hangs.",
        "seconds",
    )
    queue_bytes: int = bytes_row(
        256 * MIB,
        MIB,
        1 << 40,
        "Bytes that may be read from disk at the same time, for each kind, or be written for no engine that waits.",
        "Leave it: it bounds what a slow disk has in flight; one object larger than this still passes, alone.",
    )
    read_seconds: int = count_row(
        30,
        1,
        3600,
        "How long one restore may read.",
        "Longer than the slowest restore that is worth waiting for.",
        "seconds",
    )
    warm_percent: int = count_row(
        50,
        0,
        100,
        "Share of memory_bytes that is brought back from disk after a start, hottest first; 0 brings nothing.",
        "Leave it; it takes only memory that is free, and steps back for restores that somebody waits for.",
        "percent",
    )
    warm_bytes_per_second: int = bytes_row(
        256 * MIB,
        MIB,
        1 << 40,
        "How fast a warm-up reads.",
        "A quarter of what the drive reads.",
    )
    degrade_failures: int = count_row(
        5,
        0,
        1 << 20,
        "Restores that may fail within degrade_seconds before no further one begins (DEGRADED); 0 for any number.",
        "Leave it; fewer for a disk that is known to be sick, 0 only to look for a fault.",
    )
    degrade_seconds: int = count_row(
        60,
        1,
        1 << 20,
        "Within how long they are counted.",
        "Leave it; longer than read_seconds, or missed deadlines are never counted together.",
        "seconds",
    )
    probe_seconds: int = count_row(
        5,
        1,
        1 << 20,
        "How often a degraded cache tries whether the disk can be read again.",
        "Leave it.",
        "seconds",
    )
    restart_seconds: int = count_row(
        5,
        0,
        3600,
        "Longest pause before the keeper starts a daemon again that keeps dying.",
        "Leave it; the first restart never waits.",
        "seconds",
    )
    wait_seconds: int = count_row(
        60,
        1,
        3600,
        "How long a request may wait in the daemon for copies, memory and disk, before it is answered all the same.",
        "Leave it; longer than the slowest offload. Restores name their own.",
        "seconds",
    )
    stop_seconds: int = count_row(
        10,
        0,
        3600,
        "How long requests in flight are given when the daemon stops.",
        "Leave it.",
        "seconds",
    )
    silence_seconds: int = count_row(
        600,
        1,
        1 << 24,
        "After how long an engine that says nothing counts as silent: what it holds may be taken when it is wanted.",
        "Longer than an engine may hang and come back.",
        "seconds",
    )
    uid_connections: int = count_row(
        4096,
        1,
        1 << 20,
        "Connections of one uid, within a tenant.",
        "Each costs four descriptors: keep below a quarter of the limit.",
    )
    uid_requests: int = count_row(
        2048,
        1,
        1 << 20,
        "Requests of one uid in flight, within a tenant.",
        "Less than queue_commands, so that nobody fills the queue.",
    )
    uid_frame_bytes: int = bytes_row(
        64 << 20,
        2 << 20,
        1 << 40,
        "Requests of one uid that are half sent or wait to be looked at, within a tenant; of several, the tenant's.",
        "Room for one request of 1 MiB for each process that sends at the same time.",
    )
    uid_leases: int = count_row(
        1 << 16,
        1,
        1 << 32,
        "Leases that all engines of one uid hold together, within a tenant.",
        "Leave it; what is leased can not make room.",
    )
    uid_staging_bytes: int = bytes_row(
        64 * GIB,
        64 * KIB,
        64 << 40,
        "What the staging rings of all connections of one uid may have together, within a tenant.",
        "Leave it, or less than staging_bytes where several uids share a tenant.",
    )
    queue_commands: int = count_row(
        4096,
        16,
        1 << 20,
        "Commands that may wait for the writer loop.",
        "Leave it; a full queue stops reading.",
    )
    drill_seconds: int = count_row(
        60,
        0,
        3600,
        "How often the daemon stores, looks up, reads and verifies a block of its own; 0 for never.",
        "Leave it: a pass costs a few events, and `kvledger health` and the alerts rest on it.",
        "seconds",
    )
    audit_follow: bool = switch_row(
        "Keep the audit database in the data directory up with the log, by a process of its own beside the daemon.",
        "Turn it on where no unit of its own does; it needs about the memory of the daemon's state once more.",
    )
    http: HttpAddress = word_row(  # noqa: RUF009  a field, made by the row's helper
        HttpAddress(),
        "Where the page for browsers is served, by a process of its own: 127.0.0.1:9465, or the path of a Unix socket.",
        "A Unix socket on a machine with other users, since each of them may open a port; it turns audit_follow on.",
    )
    json_log: bool = switch_row(
        "Write log lines as JSON also to a terminal.",
        "Leave it; to a pipe they are JSON anyway.",
    )


SETTINGS: Final[dict[str, Setting]] = {
    field.name: Setting(name=field.name, kind=kind_of(field.default), default=field.default, **field.metadata)
    for field in dataclasses.fields(Config)
}
"""Name to row, in the order of the documentation."""

assert all(row.does.endswith(".") and row.advice.endswith(".") for row in SETTINGS.values())
