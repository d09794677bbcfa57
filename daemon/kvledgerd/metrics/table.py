"""The table of metrics: for each counter of a status report the metric that tells it, its type and its meaning.

The page, the exposition, dashboard and alerts are held to it by tests, and it to what a daemon reports and to what its
log adds up to. Units are those of Prometheus: bytes, seconds, ratios. What a daemon has counted since it started begins
anew with it, which Prometheus takes for a reset of the counter.
"""

import enum
from typing import Final, NamedTuple

__all__ = ["LAG", "METRICS", "UP", "Basis", "Metric"]

_COUNTER, _GAUGE = "counter", "gauge"
_TENSOR: Final = "events tell what became of objects, whoever worked on them, and nothing of work that was in vain"
_FILES: Final = "events name records, and files belong to the store, which counts what lives in each"
_GIVEN_BACK: Final = "an eviction is an event, and that the place of its record was given back later is none"
_DECIDED: Final = "what changes nothing leaves no event"
_DRILL: Final = "a pass that fails may have left no event, and that bytes were read and compared is none"
UP: Final = "kvledger_up"
"""1 if the daemon answered, 0 if it did not; told by the exporter itself."""
LAG: Final = "kvledger_log_lag_events"
"""Events that were decided and are not written yet; made of two numbers of a report."""


class Basis(enum.StrEnum):
    """What a metric can be had from beside the daemon that tells it."""

    LOG = "log"
    """The state that the whole log makes, up to the event of the report: a start changes nothing of it."""
    START = "start"
    """Sums over the events of the log from the start of the daemon on."""
    DAEMON = "daemon"
    """Nothing: it is about a process, its settings or its files, of which the log does not hold it."""


class Metric(NamedTuple):
    """One metric.

    Attributes:
        counter: Name of the counter in a status report; a kind behind a dot becomes the label `kind`.
        name: Name of the metric.
        type: ``counter`` or ``gauge``.
        help: What it tells.
        basis: What it reconciles with.
        scale: By how much the counter's number is divided.
        unlogged: Of what counts and can not be had from the log, why.
    """

    counter: str
    name: str
    type: str
    help: str
    basis: Basis
    scale: int = 1
    unlogged: str = ""


def _gauge(counter: str, help_text: str, name: str = "", scale: int = 1) -> Metric:
    return Metric(counter, f"kvledger_{name or counter}", _GAUGE, help_text, Basis.DAEMON, scale)


def _held(counter: str, help_text: str, name: str = "", scale: int = 1) -> Metric:
    """Return a gauge of what the log holds."""
    return Metric(counter, f"kvledger_{name or counter}", _GAUGE, help_text, Basis.LOG, scale)


def _count(counter: str, help_text: str, basis: Basis = Basis.START) -> Metric:
    return Metric(counter, f"kvledger_{counter}_total", _COUNTER, help_text, basis)


def _unlogged(counter: str, help_text: str, why: str) -> Metric:
    """Return a counter of what the log does not hold."""
    return Metric(counter, f"kvledger_{counter}_total", _COUNTER, help_text, Basis.DAEMON, unlogged=why)


def _queue(name: str, what: str) -> tuple[Metric, ...]:
    """Return the gauges of one queue of background work, which all have kinds."""
    return (
        _gauge(f"{name}_queued", f"Pieces of work that wait: {what}."),
        _gauge(f"{name}_running", f"Pieces of work that run: {what}."),
        _gauge(f"{name}_bytes", f"Bytes of the pieces that wait and run: {what}."),
        _gauge(f"{name}_oldest_ms", f"Age of the oldest piece that waits: {what}.", f"{name}_oldest_seconds", 1000),
    )


def _tensor(name: str, what: str) -> tuple[Metric, ...]:
    """Return the metrics of one sort of work of the tensor worker."""
    return (
        _unlogged(f"tensor_{name}_jobs", f"Jobs of the tensor worker that ended well: {what}.", _TENSOR),
        _unlogged(f"tensor_{name}_bytes", f"Bytes that these read and wrote: {what}.", _TENSOR),
        _unlogged(f"tensor_{name}_failed", f"Jobs that failed: {what}.", _TENSOR),
    )


METRICS: Final = (
    _count("hash_hit_tokens", "Tokens that a plain hash cache would have claimed; by kind taken alone."),
    _count("recoverable_hit_tokens", "Tokens of these that were recoverable; by kind taken alone."),
    _count("ready_hit_tokens", "Tokens of these that lay ready; by kind taken alone."),
    _count("residue_hit_tokens", "Tokens that boundaries inside a block added to these, as clients kept them."),
    _held("objects", "Objects, reserved ones included."),
    _held("cells", "Places that hold objects: blocks and boundaries."),
    _held("blocks", "Blocks that are known."),
    _held("layouts", "Layouts that are known."),
    _held("engines", "Engines that are alive."),
    _held("leases", "Leases that are held."),
    _held("units", "Reservations that are open."),
    _held("topologies", "Topologies, which pin what captured graphs read."),
    _held("topologies_broken", "Topologies under which memory was damaged."),
    _held("topology_bytes", "Bytes that topologies pin."),
    _held("arenas", "Arenas."),
    _held("arena_bytes", "Bytes of all arenas."),
    _gauge("memory_cap_bytes", "Bytes that all arenas may have."),
    _held("live_bytes", "Bytes of one kind in use in arenas."),
    _held("free_bytes", "Bytes of one kind that are free in its arenas."),
    _held("fragmentation", "Part of the arenas of one kind that holds nothing.", "fragmentation_ratio", 1000),
    _gauge("staging_bytes", "Bytes of all staging rings."),
    _gauge("staging_cap_bytes", "Bytes that the staging rings of one tenant may have together."),
    _gauge("huge_pages", "1 if the kernel gives shared memory huge pages on advice."),
    _count("material_unused", "Blocks that were dropped before a boundary stood on them.", Basis.LOG),
    _count("stored_unusable", "Units that were refused since no look-up could have used their boundary.", Basis.LOG),
    _held("device_pools", "Device pools."),
    _held("device_bytes", "Bytes of all device pools."),
    _held("device_copies", "Copies in device pools."),
    _held("device_units", "Units that engines are filling on devices."),
    _held("device_live_bytes", "Bytes of one kind in use in device pools."),
    _held("device_free_bytes", "Bytes of one kind that are free in its regions of device pools."),
    _held(
        "device_fragmentation",
        "Part of what device pools set aside for one kind that holds nothing.",
        "device_fragmentation_ratio",
        1000,
    ),
    _gauge("prefixes_full", "Boundaries that lie in memory with all they need."),
    _gauge("prefixes_compressed", "Boundaries of which a part is left as quantised records alone, on disk."),
    _gauge("prefixes_partial_offload", "Boundaries of which a part, or all, lies on disk alone."),
    _gauge("prefixes_full_restore", "Boundaries that lie in memory again."),
    _gauge("prefixes_gone", "Boundaries of which something is kept, and a part nowhere."),
    _gauge("prefixes_approx", "Boundaries of these that are approximations."),
    _held("disk_bytes", "Bytes of live records on disk."),
    _gauge("disk_cap_bytes", "Bytes that all records may have."),
    _held("disk_quantised_records", "Records on disk that hold their objects quantised."),
    _held("disk_quantised_bytes", "Bytes of these."),
    _gauge("disk_file_bytes", "Bytes of all data files."),
    _gauge("disk_dead_bytes", "Bytes of data files that hold nothing alive."),
    _gauge("disk_segments", "Data files."),
    _gauge("disk_direct", "1 if records are read and written with direct I/O."),
    _held("disk_read_only", "1 if the disk tier takes no writes."),
    _count("disk_records_damaged", "Records that start, scrubber or cleaner found damaged.", Basis.LOG),
    _unlogged(
        "disk_records_unread",
        "Reads of the scrubber and the cleaner that the system refused.",
        "a read that the system refused says nothing of the record, which is tried again",
    ),
    _gauge("disk_writes_waiting", "Offloads that wait for the cleaner to make room."),
    _unlogged("disk_removed_segments", "Dead data files that were removed.", _FILES),
    _unlogged("disk_removed_bytes", "Bytes of these.", _FILES),
    _count("cleaned_records", "Live records that were moved out of files that are mostly dead."),
    _count("cleaned_bytes", "Bytes of these."),
    _count("scrub_passes", "Passes of the scrubber that ended.", Basis.LOG),
    _held("scrub_segment", "Data file that is being scrubbed, 0 between passes."),
    _count("scrub_records", "Records that were scrubbed.", Basis.LOG),
    _count("scrub_bytes", "Bytes of these.", Basis.LOG),
    _held("scrub_paused", "1 while the scrubber is paused."),
    _held("restored_bytes_per_second", "How fast restores were so far, 0 before the first."),
    _gauge("restores_failed_lately", "Restores that failed within degrade_seconds."),
    _held("degraded", "1 while restores have stopped."),
    *_queue("restore", "reads for which somebody waits"),
    *_queue("promotion", "reads ahead of need"),
    *_queue("offload", "writes to disk"),
    *_queue("cleaning", "records that are given back"),
    _count("restore_done", "Restores that brought all of one kind that they were to bring."),
    _count("restore_failed", "Restores that did not; one that nobody waited for any more is neither."),
    _count("promotion_done", "Reads ahead of need that brought all of one kind that they were to bring."),
    _count("promotion_failed", "Reads ahead of need that did not."),
    _count("offload_done", "Boundaries that were written to disk."),
    _count("offload_failed", "Boundaries of which nothing was written though it was begun."),
    _unlogged("cleaning_done", "Batches of records that were given back.", _GIVEN_BACK),
    _unlogged("cleaning_failed", "Batches that could not be given back.", _GIVEN_BACK),
    _gauge("warm_running", "1 while a warm-up runs."),
    _gauge("warm_seen", "Prefixes that the latest warm-up has looked at."),
    _gauge("warm_total", "Prefixes among which it chooses."),
    _count("warm_prefixes", "Prefixes that warm-ups have brought whole."),
    _count("warm_bytes", "Bytes that warm-ups have brought."),
    _held("jobs", "Jobs that the log knows."),
    _gauge("jobs_copy", "Copies under way."),
    _gauge("jobs_disk", "Disk jobs under way."),
    _gauge("jobs_read", "Reads under way."),
    _gauge("jobs_hash", "Verifications under way."),
    _gauge("jobs_arena", "Arenas being made."),
    _gauge("jobs_tensor", "Jobs of the tensor worker under way."),
    _gauge("jobs_upkeep", "Upkeep of the disk under way."),
    _gauge("tensor_process", "1 while the tensor worker has a process."),
    _gauge("tensor_gpu", "1 if the tensor worker is to work on a GPU."),
    _unlogged(
        "tensor_lost",
        "Processes of the tensor worker that died, hung or did not come up.",
        "a process that died is an error in the daemon's own log, and its jobs are tried again or given up",
    ),
    *_tensor("convert", "conversions between page formats"),
    *_tensor("quantise", "objects that are quantised, on a GPU alone"),
    *_tensor("dequantise", "objects that are made of quantised records, on a GPU alone"),
    _gauge("connections", "Connections."),
    _gauge("requests_in_flight", "Requests without an answer."),
    _gauge("queue_commands", "Commands that wait for the writer."),
    _gauge("queue_parked", "Commands that wait for jobs."),
    _gauge("queue_waiting", "Replies that wait for the log."),
    _gauge("loop_lag_micros", "How late the event loop was in its latest second.", "loop_lag_seconds", 1_000_000),
    _gauge("drill_seconds", "Seconds between two passes of the drill, 0 if there are none."),
    _unlogged("drill_passes", "Passes of the drill.", _DRILL),
    _unlogged("drill_failures", "Passes that failed.", _DRILL),
    _gauge("drill_failing", "1 if the latest pass failed, or none has ended well for three intervals."),
    _gauge("drill_age_ms", "Since the latest pass that ended well, or since the start.", "drill_age_seconds", 1000),
    _gauge("drill_micros", "How long the latest pass that ended well took.", "drill_latency_seconds", 1_000_000),
    _unlogged("decisions", "Commands that were decided.", _DECIDED),
    _unlogged("decision_faults", "Commands that ended in an exception: bugs.", _DECIDED),
    _gauge("log_written_seq", "Last event that survives a crash of the daemon."),
    _gauge("log_durable_seq", "Last event that survives a power cut."),
    _gauge("log_spares", "Spare segments of the log."),
)
"""All metrics that a status report tells, in the order of the page."""
