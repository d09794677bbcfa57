"""The rows of the table of settings about what the cache is: where it lies, who is let in, what it may hold."""

from dataclasses import dataclass
from pathlib import Path

from kvledgerd.access import AccessRules, Sockets
from kvledgerd.core.config import DiskWritePolicy
from kvledgerd.keeper.listener import SOCKET_NAME, Listening
from kvledgerd.settings.kind_values import KindCaps, KindPrecisions
from kvledgerd.settings.rows import bytes_row, count_row, kinds_row, path_row, word_row
from kvledgerd.sizes import GIB, MIB

__all__ = ["CacheSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Settings of the cache itself; the first rows of `kvledgerd.settings.table.SETTINGS`."""

    data_dir: Path = path_row(  # noqa: RUF009  a field, made by the row's helper
        "/var/lib/kvledger",
        "Directory of log, secret and disk records.",
        "A local file system with room for disk_bytes and a gigabyte of log; never shared between daemons.",
    )
    socket: Path = path_row(  # noqa: RUF009  a field, made by the row's helper
        "/run/kvledger/kvledger.sock",
        "Unix socket at which clients connect.",
        "At most 107 bytes long; without rules (access) whoever may open it is in the cache's trust domain.",
    )
    sockets: Sockets = word_row(  # noqa: RUF009  a field, made by the row's helper
        Sockets(),
        "Further listening sockets, each a name, a path and a mode, such as one for each container.",
        "None for one tenant; docs/security.md has a complete example.",
    )
    access: AccessRules = word_row(  # noqa: RUF009  a field, made by the row's helper
        AccessRules(),
        "Rules: which socket, uid and gid make whom a reader, writer or operator of which tenant; the first counts.",
        "None where the machine has one owner: whoever may open the socket is then operator of the tenant default.",
    )
    memory_bytes: int = bytes_row(
        GIB,
        8 * MIB,
        1 << 50,
        "Shared memory for all arenas together.",
        "What the machine can spare: it is charged to the daemon, so the limit of its unit or pod must hold it.",
    )
    arena_bytes: int = bytes_row(
        64 * MIB,
        MIB,
        1 << 46,
        "Size of one arena; never more than a sixteenth nor less than a 256th of memory_bytes.",
        "Leave it; larger ones cost more to make, smaller ones more descriptors. A larger object gets its own.",
    )
    disk_bytes: int = bytes_row(
        16 * GIB,
        0,
        1 << 56,
        "Disk space for records.",
        "A few times memory_bytes; 0 keeps nothing on disk.",
    )
    disk_write: DiskWritePolicy = word_row(  # noqa: RUF009  a field, made by the row's helper
        DiskWritePolicy.ON_EVICT,
        "When the daemon writes by itself: asked (never), on_evict, on_second_use or always.",
        "Leave it; with asked what engines do not offload is lost with the memory, and always wears the disk most.",
    )
    disk_precision: KindPrecisions = word_row(  # noqa: RUF009  a field, made by the row's helper
        KindPrecisions(),
        "In which precision objects of a kind are written to disk, such as COMPRESSED_KV=e4m3: e4m3, int8 or exact.",
        "Leave it, unless models allow approximations and disk is short; whoever wants exact bytes misses then.",
    )
    stop_write_seconds: int = count_row(
        20,
        0,
        3600,
        "How long a daemon that stops begins to write what only memory has; 0, or disk_write asked, writes nothing.",
        "What the service manager gives a stop, less stop_seconds and ten seconds.",
        "seconds",
    )
    tenants: int = count_row(
        1,
        1,
        64,
        "Tenants for which memory is set aside: each is sure of one arena of each kind.",
        "The number of tenants that are served; memory_bytes has to hold four arenas for each.",
    )
    tenant_bytes: int = bytes_row(
        0,
        0,
        1 << 50,
        "Cap on the arenas of one tenant; 0 for an equal part of memory_bytes.",
        "Leave it; with more than an equal part who comes first keeps it, for memory never changes its tenant.",
    )
    kind_bytes: KindCaps = kinds_row(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the memory of kinds within a tenant, such as SWA_WINDOW=1GiB, INDEXER_STATE=512MiB.",
        "Leave it: quotas follow the load. A cap is for what must never be more.",
    )
    memory_entries: int = count_row(
        0,
        0,
        1 << 32,
        "Cap on the objects in memory; 0 sets none.",
        "Leave it.",
    )
    tenant_entries: int = count_row(
        0,
        0,
        1 << 32,
        "Cap on the objects of one tenant in memory; 0 for an equal part of half of max_objects if there are several.",
        "Leave it.",
    )
    kind_entries: KindCaps = kinds_row(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the objects of kinds within a tenant in memory, such as SWA_WINDOW=100000.",
        "Leave it, unless one kind has so many small objects that it crowds the others out.",
    )
    disk_tenant_bytes: int = bytes_row(
        0,
        0,
        1 << 56,
        "Cap on the disk records of one tenant; 0 for an equal part of disk_bytes.",
        "Leave it; more than an equal part may leave nothing to who comes last.",
    )
    disk_kind_bytes: KindCaps = kinds_row(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the disk records of kinds within a tenant; manifests are of the kind DISK_PREFIX.",
        "Leave it.",
    )
    disk_entries: int = count_row(
        0,
        0,
        1 << 32,
        "Cap on the records on disk; 0 sets none.",
        "Leave it.",
    )
    disk_tenant_entries: int = count_row(
        0,
        0,
        1 << 32,
        "Cap on the disk records of one tenant; 0 for an equal part of half of max_objects if there are several.",
        "Leave it.",
    )
    disk_kind_entries: KindCaps = kinds_row(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the number of disk records of kinds within a tenant; DISK_PREFIX=1000 keeps a thousand boundaries.",
        "Leave it.",
    )
    device_bytes: int = bytes_row(
        0,
        0,
        1 << 62,
        "Cap on the pages that objects take in all device pools together; 0 sets none.",
        "0: the pages are the engines' own, and each pool has only those that its engine set aside.",
    )
    device_tenant_bytes: int = bytes_row(
        0,
        0,
        1 << 62,
        "Cap on the pages of one tenant in device pools; 0 sets none.",
        "Leave it.",
    )
    device_kind_bytes: KindCaps = kinds_row(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the pages of kinds within a tenant in device pools.",
        "Leave it: a pool has pages for each group, which is a cap already.",
    )
    device_entries: int = count_row(
        1 << 22,
        1,
        1 << 32,
        "Cap on the copies in device pools.",
        "Leave it; it bounds the daemon's own memory.",
    )
    device_tenant_entries: int = count_row(
        0,
        0,
        1 << 32,
        "Cap on the copies of one tenant in device pools; 0 for an equal part of device_entries.",
        "Leave it.",
    )
    device_kind_entries: KindCaps = kinds_row(  # noqa: RUF009  a field, made by the row's helper
        "Caps on the number of copies of kinds within a tenant in device pools.",
        "Leave it.",
    )

    @property
    def listening(self) -> list[Listening]:
        """All sockets, the first one first."""
        return [Listening(SOCKET_NAME, self.socket), *(row.listening for row in self.sockets)]
