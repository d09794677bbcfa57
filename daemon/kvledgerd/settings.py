"""The table of settings: name, type, default, bounds, what each does and what to take if unsure.

Everything that has to do with configuration is made from it: reading the file and the environment, the refusals, and
the printed form.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvledgerd.access import AccessRules, Sockets
from kvledgerd.core.config import DiskWrite
from kvledgerd.keeper.listener import SOCKET_NAME, Listening
from kvledgerd.kind_caps import KindCaps
from kvledgerd.kind_forms import KindForms
from kvledgerd.setting_rows import Setting
from kvledgerd.setting_rows import bytes_row as _bytes
from kvledgerd.setting_rows import count_row as _count
from kvledgerd.setting_rows import kind_of as _kind
from kvledgerd.setting_rows import kinds_row as _kinds
from kvledgerd.setting_rows import path_row as _path
from kvledgerd.setting_rows import row as _row
from kvledgerd.setting_rows import switch_row as _switch
from kvledgerd.tensor_device import TensorDevice
from kvledgerd.web.address import HttpAddress

__all__ = ["SETTINGS", "Config", "Setting"]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings of a daemon. The attributes are the rows of `SETTINGS`."""

    data_dir: Path = _path(  # noqa: RUF009  a field, made by the row's helper
        "/var/lib/kvledger",
        "Directory of log, secret and disk records.",
        "A local file system with room for disk_bytes and a gigabyte of log; never shared between daemons.",
    )
    socket: Path = _path(  # noqa: RUF009  a field, made by the row's helper
        "/run/kvledger/kvledger.sock",
        "Unix socket at which clients connect.",
        "At most 107 bytes long; without rules (access) whoever may open it is in the cache's trust domain.",
    )
    sockets: Sockets = _row(  # noqa: RUF009  a field, made by the row's helper
        Sockets(),
        "",
        None,
        None,
        "Further listening sockets, each a name, a path and a mode, such as one for each container.",
        "None for one tenant; docs/security.md has a complete example.",
    )
    access: AccessRules = _row(  # noqa: RUF009  a field, made by the row's helper
        AccessRules(),
        "",
        None,
        None,
        "Rules: which socket, uid and gid make whom a reader, writer or operator of which tenant; the first counts.",
        "None where the machine has one owner: whoever may open the socket is then operator of the tenant default.",
    )
    memory_bytes: int = _bytes(
        GIB,
        8 * MIB,
        1 << 50,
        "Shared memory for all arenas together.",
        "What the machine can spare: it is charged to the daemon, so the limit of its unit or pod must hold it.",
    )
    arena_bytes: int = _bytes(
        64 * MIB,
        MIB,
        1 << 46,
        "Size of one arena; never more than a sixteenth nor less than a 256th of memory_bytes.",
        "Leave it; larger ones cost more to make, smaller ones more descriptors. A larger object gets its own.",
    )
    disk_bytes: int = _bytes(
        16 * GIB,
        0,
        1 << 56,
        "Disk space for records.",
        "A few times memory_bytes; 0 keeps nothing on disk.",
    )
    disk_write: DiskWrite = _row(  # noqa: RUF009  a field, made by the row's helper
        DiskWrite.ON_EVICT,
        "",
        None,
        None,
        "When the daemon writes by itself: asked (never), on_evict, on_second_use or always.",
        "Leave it; with asked what engines do not offload is lost with the memory, and always wears the disk most.",
    )
    disk_form: KindForms = _row(  # noqa: RUF009  a field, made by the row's helper
        KindForms(),
        "",
        None,
        None,
        "In which form objects of a kind are written to disk, such as COMPRESSED_KV=e4m3: e4m3, int8 or exact.",
        "Leave it, unless models allow approximations and disk is short; whoever wants exact bytes misses then.",
    )
    stop_write_seconds: int = _count(
        20,
        0,
        3600,
        "How long a daemon that stops begins to write what only memory has; 0, or disk_write asked, writes nothing.",
        "What the service manager gives a stop, less stop_seconds and ten seconds.",
        "seconds",
    )
    tenants: int = _count(
        1,
        1,
        64,
        "Tenants for which memory is set aside: each is sure of one arena of each kind.",
        "The number of tenants that are served; memory_bytes has to hold four arenas for each.",
    )
    tenant_bytes: int = _bytes(
        0,
        0,
        1 << 50,
        "Cap on the arenas of one tenant; 0 for an equal part of memory_bytes.",
        "Leave it; with more than an equal part who comes first keeps it, for memory never changes its tenant.",
    )
    kind_bytes: KindCaps = _kinds(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the memory of kinds within a tenant, such as SWA_WINDOW=1GiB, INDEXER_STATE=512MiB.",
        "Leave it: quotas follow the load. A cap is for what must never be more.",
    )
    memory_entries: int = _count(
        0,
        0,
        1 << 32,
        "Cap on the objects in memory; 0 sets none.",
        "Leave it.",
    )
    tenant_entries: int = _count(
        0,
        0,
        1 << 32,
        "Cap on the objects of one tenant in memory; 0 for an equal part of half of max_objects if there are several.",
        "Leave it.",
    )
    kind_entries: KindCaps = _kinds(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the objects of kinds within a tenant in memory, such as SWA_WINDOW=100000.",
        "Leave it, unless one kind has so many small objects that it crowds the others out.",
    )
    disk_tenant_bytes: int = _bytes(
        0,
        0,
        1 << 56,
        "Cap on the disk records of one tenant; 0 for an equal part of disk_bytes.",
        "Leave it; more than an equal part may leave nothing to who comes last.",
    )
    disk_kind_bytes: KindCaps = _kinds(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the disk records of kinds within a tenant; manifests are of the kind DISK_PREFIX.",
        "Leave it.",
    )
    disk_entries: int = _count(
        0,
        0,
        1 << 32,
        "Cap on the records on disk; 0 sets none.",
        "Leave it.",
    )
    disk_tenant_entries: int = _count(
        0,
        0,
        1 << 32,
        "Cap on the disk records of one tenant; 0 for an equal part of half of max_objects if there are several.",
        "Leave it.",
    )
    disk_kind_entries: KindCaps = _kinds(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the number of disk records of kinds within a tenant; DISK_PREFIX=1000 keeps a thousand boundaries.",
        "Leave it.",
    )
    device_bytes: int = _bytes(
        0,
        0,
        1 << 62,
        "Cap on the pages that objects take in all device pools together; 0 sets none.",
        "0: the pages are the engines' own, and each pool has only those that its engine set aside.",
    )
    device_tenant_bytes: int = _bytes(
        0,
        0,
        1 << 62,
        "Cap on the pages of one tenant in device pools; 0 sets none.",
        "Leave it.",
    )
    device_kind_bytes: KindCaps = _kinds(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the pages of kinds within a tenant in device pools.",
        "Leave it: a pool has pages for each group, which is a cap already.",
    )
    device_entries: int = _count(
        1 << 22,
        1,
        1 << 32,
        "Cap on the copies in device pools.",
        "Leave it; it bounds the daemon's own memory.",
    )
    device_tenant_entries: int = _count(
        0,
        0,
        1 << 32,
        "Cap on the copies of one tenant in device pools; 0 for an equal part of device_entries.",
        "Leave it.",
    )
    device_kind_entries: KindCaps = _kinds(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the number of copies of kinds within a tenant in device pools.",
        "Leave it.",
    )
    log_segment_bytes: int = _bytes(
        16 * MIB,
        64 * KIB,
        GIB,
        "Size of one segment of the log.",
        "Leave it; small ones are for tests.",
    )
    quarantine_log: bool = _switch(
        "Set a damaged log aside and begin a new one that names it.",
        "Leave it; use --on-corrupt=quarantine for the one start that needs it: everything cached is forgotten.",
    )
    exit_on_damage: bool = _switch(
        "End with exit code 65 over a damaged log, instead of holding the memory and refusing everybody.",
        "Leave it: memory that is let go of can not be used again when the log is mended.",
    )
    snapshot_events: int = _count(
        1_000_000,
        0,
        1 << 62,
        "Events of the log between two snapshots, which spare a start their replay; 0 makes none.",
        "Leave it: a million events take some five seconds to replay.",
        "events",
    )
    archive_bytes: int = _bytes(
        64 * GIB,
        0,
        1 << 56,
        "Most bytes of archived segments of the log; the oldest are retired beyond it, and sooner on a full disk.",
        "As much as the past that audit is asked about: some 100 bytes for each look-up, more for each commit.",
    )
    disk_segment_bytes: int = _bytes(
        256 * MIB,
        64 * KIB,
        1 << 40,
        "Size of one file of disk records.",
        "Leave it; never more than a 16th of disk_bytes, of which writes leave one file's worth to the cleaner.",
    )
    scrub_bytes_per_second: int = _bytes(
        32 * MIB,
        64 * KIB,
        1 << 40,
        "Most bytes a second that the scrubber reads while it verifies what lies on disk.",
        "A tenth of what the drive reads or less; disk_bytes divided by it is how long a pass takes.",
    )
    scrub_seconds: int = _count(
        86_400,
        0,
        1 << 24,
        "From the end of one pass of the scrubber to the begin of the next; 0 makes none but those that are asked for.",
        "A day; damage that nobody reads is found within that time and a pass.",
        "seconds",
    )
    ring_bytes: int = _bytes(
        GIB,
        64 * KIB,
        1 << 40,
        "Greatest staging ring of one connection.",
        "A few times the largest object.",
    )
    staging_bytes: int = _bytes(
        64 * GIB,
        64 * KIB,
        64 << 40,
        "What the staging rings of all connections of one tenant may have together.",
        "Connections that write at the same time, times the ring that engines open (64 MiB if nothing is said).",
    )
    max_objects: int = _count(
        1 << 24,
        1,
        1 << 32,
        "Objects that may exist at the same time.",
        "Leave it; it bounds the daemon's own memory.",
    )
    topology_percent: int = _count(
        50,
        0,
        100,
        "Share of memory_bytes that topologies, which are what captured graphs read in place, may pin.",
        "What other engines can do without: only the owner of a topology, or its end, gives its memory back.",
        "percent",
    )
    compact_percent: int = _count(
        50,
        0,
        100,
        "Free share of a kind's memory beyond which the objects of its emptiest arena move to the others; 0 for never.",
        "Leave it: an arena that was emptied can become one of another kind.",
        "percent",
    )
    allow_unpinned: bool = _switch(
        "Let layouts leave their weights unnamed; what an engine stores under one ends with it and is its alone.",
        "Leave it, and name the weights; it is for experiments with weights that change all the time.",
    )
    copy_workers: int = _count(
        2,
        1,
        64,
        "Threads that copy, and hash what they copied.",
        "One for each 5 GiB/s that engines hand in, at most half the cores.",
    )
    read_workers: int = _count(
        2,
        1,
        64,
        "Threads that read from disk, for each kind.",
        "2 for one drive, 4 for several.",
    )
    tensor_device: TensorDevice = _row(  # noqa: RUF009  a field, made by the row's helper
        TensorDevice("cpu"),
        "",
        None,
        None,
        "Where a process beside the daemon works on tensors: cpu, or a GPU as torch names it (cuda:0).",
        "Leave it; a GPU needs kvledger[gpu] and devices that the daemon's unit may open, and is refused if it lacks.",
    )
    tensor_seconds: int = _count(
        30,
        1,
        3600,
        "How long one job on tensors of up to 1 GiB may take before its process is ended; larger ones have more.",
        "Leave it: it is for a process that hangs.",
        "seconds",
    )
    queue_bytes: int = _bytes(
        256 * MIB,
        MIB,
        1 << 40,
        "Bytes that may be read from disk at the same time, for each kind, or be written for no engine that waits.",
        "Leave it: it bounds what a slow disk has in flight; one object larger than this still passes, alone.",
    )
    read_seconds: int = _count(
        30,
        1,
        3600,
        "How long one restore may read.",
        "Longer than the slowest restore that is worth waiting for.",
        "seconds",
    )
    warm_percent: int = _count(
        50,
        0,
        100,
        "Share of memory_bytes that is brought back from disk after a start, hottest first; 0 brings nothing.",
        "Leave it; it takes only memory that is free, and steps back for restores that somebody waits for.",
        "percent",
    )
    warm_bytes_per_second: int = _bytes(
        256 * MIB,
        MIB,
        1 << 40,
        "How fast a warm-up reads.",
        "A quarter of what the drive reads.",
    )
    degrade_failures: int = _count(
        5,
        0,
        1 << 20,
        "Restores that may fail within degrade_seconds before no further one begins (DEGRADED); 0 for any number.",
        "Leave it; fewer for a disk that is known to be sick, 0 only to look for a fault.",
    )
    degrade_seconds: int = _count(
        60,
        1,
        1 << 20,
        "Within how long they are counted.",
        "Leave it; longer than read_seconds, or missed deadlines are never counted together.",
        "seconds",
    )
    probe_seconds: int = _count(
        5,
        1,
        1 << 20,
        "How often a degraded cache tries whether the disk can be read again.",
        "Leave it.",
        "seconds",
    )
    restart_seconds: int = _count(
        5,
        0,
        3600,
        "Longest pause before the keeper starts a daemon again that keeps dying.",
        "Leave it; the first restart never waits.",
        "seconds",
    )
    wait_seconds: int = _count(
        60,
        1,
        3600,
        "How long a request may wait in the daemon for copies, memory and disk, before it is answered all the same.",
        "Leave it; longer than the slowest offload. Restores name their own.",
        "seconds",
    )
    stop_seconds: int = _count(
        10,
        0,
        3600,
        "How long requests in flight are given when the daemon stops.",
        "Leave it.",
        "seconds",
    )
    silence_seconds: int = _count(
        600,
        1,
        1 << 24,
        "After how long an engine that says nothing counts as silent: what it holds may be taken when it is wanted.",
        "Longer than an engine may hang and come back.",
        "seconds",
    )
    uid_connections: int = _count(
        4096,
        1,
        1 << 20,
        "Connections of one uid, within a tenant.",
        "Each costs four descriptors: keep below a quarter of the limit.",
    )
    uid_requests: int = _count(
        2048,
        1,
        1 << 20,
        "Requests of one uid in flight, within a tenant.",
        "Less than queue_commands, so that nobody fills the queue.",
    )
    uid_frame_bytes: int = _bytes(
        64 << 20,
        2 << 20,
        1 << 40,
        "Requests of one uid that are half sent or wait to be looked at, within a tenant; of several, the tenant's.",
        "Room for one request of 1 MiB for each process that sends at the same time.",
    )
    uid_leases: int = _count(
        1 << 16,
        1,
        1 << 32,
        "Leases that all engines of one uid hold together, within a tenant.",
        "Leave it; what is leased can not make room.",
    )
    uid_staging_bytes: int = _bytes(
        64 * GIB,
        64 * KIB,
        64 << 40,
        "What the staging rings of all connections of one uid may have together, within a tenant.",
        "Leave it, or less than staging_bytes where several uids share a tenant.",
    )
    queue_commands: int = _count(
        4096,
        16,
        1 << 20,
        "Commands that may wait for the writer loop.",
        "Leave it; a full queue stops reading.",
    )
    canary_seconds: int = _count(
        60,
        0,
        3600,
        "How often the daemon stores, looks up, reads and verifies a block of its own; 0 for never.",
        "Leave it: a pass costs a few events, and `kvledger health` and the alerts rest on it.",
        "seconds",
    )
    audit_follow: bool = _switch(
        "Keep the audit database in the data directory up with the log, by a process of its own beside the daemon.",
        "Turn it on where no unit of its own does; it needs about the memory of the daemon's state once more.",
    )
    http: HttpAddress = _row(  # noqa: RUF009  a field, made by the row's helper
        HttpAddress(),
        "",
        None,
        None,
        "Where the page for browsers is served, by a process of its own: 127.0.0.1:9465, or the path of a Unix socket.",
        "A Unix socket on a machine with other users, since each of them may open a port; it turns audit_follow on.",
    )
    json_log: bool = _switch(
        "Write log lines as JSON also to a terminal.",
        "Leave it; to a pipe they are JSON anyway.",
    )

    @property
    def listening(self) -> list[Listening]:
        """All sockets, the first one first."""
        return [Listening(SOCKET_NAME, self.socket), *(row.listening for row in self.sockets)]


SETTINGS: Final[dict[str, Setting]] = {
    field.name: Setting(name=field.name, kind=_kind(field.default), default=field.default, **field.metadata)
    for field in dataclasses.fields(Config)
}
"""Name to row, in the order of the documentation."""

assert all(row.does.endswith(".") and row.advice.endswith(".") for row in SETTINGS.values())
