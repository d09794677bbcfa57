"""The table of metrics: for each counter of a status report the metric that tells it, its type and its meaning.

The page, the exposition, dashboard and alerts are held to it by tests, and it to what a daemon reports. Units are those
of Prometheus: bytes, seconds, ratios. What a daemon has counted since it started begins anew with it, which Prometheus
takes for a reset of the counter.
"""

from typing import Final, NamedTuple

__all__ = ["LAG", "METRICS", "UP", "Metric"]

_COUNTER, _GAUGE = "counter", "gauge"
UP: Final = "kvledger_up"
"""1 if the daemon answered, 0 if it did not; told by the exporter itself."""
LAG: Final = "kvledger_log_lag_events"
"""Events that were decided and are not written yet; made of two numbers of a report."""


class Metric(NamedTuple):
    """One metric.

    Attributes:
        counter: Name of the counter in a status report; a kind behind a dot becomes the label `kind`.
        name: Name of the metric.
        type: ``counter`` or ``gauge``.
        help: What it tells.
        scale: By how much the counter's number is divided.
    """

    counter: str
    name: str
    type: str
    help: str
    scale: int = 1


def _gauge(counter: str, help_text: str, name: str = "", scale: int = 1) -> Metric:
    return Metric(counter, f"kvledger_{name or counter}", _GAUGE, help_text, scale)


def _count(counter: str, help_text: str, name: str = "") -> Metric:
    return Metric(counter, f"kvledger_{name or counter}_total", _COUNTER, help_text)


def _queue(name: str, what: str) -> tuple[Metric, ...]:
    """Return the metrics of one queue of background work, whose counters all have kinds."""
    return (
        _gauge(f"{name}_queued", f"Pieces of work that wait: {what}."),
        _gauge(f"{name}_running", f"Pieces of work that run: {what}."),
        _gauge(f"{name}_bytes", f"Bytes of the pieces that wait and run: {what}."),
        _gauge(f"{name}_oldest_ms", f"Age of the oldest piece that waits: {what}.", f"{name}_oldest_seconds", 1000),
        _count(f"{name}_done", f"Pieces that ended well: {what}."),
        _count(f"{name}_failed", f"Pieces that failed: {what}."),
    )


def _tensor(name: str, what: str) -> tuple[Metric, ...]:
    """Return the metrics of one sort of work of the tensor worker."""
    return (
        _count(f"tensor_{name}_jobs", f"Jobs of the tensor worker that ended well: {what}."),
        _count(f"tensor_{name}_bytes", f"Bytes that these read and wrote: {what}."),
        _count(f"tensor_{name}_failed", f"Jobs that failed: {what}."),
    )


METRICS: Final = (
    _count("hash_hit_tokens", "Tokens that a plain hash cache would have claimed; by kind taken alone."),
    _count("recoverable_hit_tokens", "Tokens of these that were recoverable; by kind taken alone."),
    _count("ready_hit_tokens", "Tokens of these that lay ready; by kind taken alone."),
    _count("residue_hit_tokens", "Tokens that boundaries inside a block added to these, as clients kept them."),
    _gauge("objects", "Objects, reserved ones included."),
    _gauge("cells", "Places that hold objects: blocks and boundaries."),
    _gauge("blocks", "Blocks that are known."),
    _gauge("layouts", "Layouts that are known."),
    _gauge("engines", "Engines that are alive."),
    _gauge("leases", "Leases that are held."),
    _gauge("units", "Reservations that are open."),
    _gauge("topologies", "Topologies, which pin what captured graphs read."),
    _gauge("topologies_broken", "Topologies under which memory was damaged."),
    _gauge("topology_bytes", "Bytes that topologies pin."),
    _gauge("arenas", "Arenas."),
    _gauge("arena_bytes", "Bytes of all arenas."),
    _gauge("memory_cap_bytes", "Bytes that all arenas may have."),
    _gauge("live_bytes", "Bytes of one kind in use in arenas."),
    _gauge("free_bytes", "Bytes of one kind that are free in its arenas."),
    _gauge("fragmentation", "Part of the arenas of one kind that holds nothing.", "fragmentation_ratio", 1000),
    _gauge("staging_bytes", "Bytes of all staging rings."),
    _gauge("staging_cap_bytes", "Bytes that the staging rings of one tenant may have together."),
    _gauge("huge_pages", "1 if the kernel gives shared memory huge pages on advice."),
    _count("material_unused", "Blocks that were dropped before a boundary stood on them."),
    _count("stored_unusable", "Units that were refused since no look-up could have used their boundary."),
    _gauge("device_pools", "Device pools."),
    _gauge("device_bytes", "Bytes of all device pools."),
    _gauge("device_copies", "Copies in device pools."),
    _gauge("device_units", "Units that engines are filling on devices."),
    _gauge("device_live_bytes", "Bytes of one kind in use in device pools."),
    _gauge("device_free_bytes", "Bytes of one kind that are free in its regions of device pools."),
    _gauge(
        "device_fragmentation",
        "Part of what device pools set aside for one kind that holds nothing.",
        "device_fragmentation_ratio",
        1000,
    ),
    _gauge("prefixes_full", "Boundaries that lie in memory with all they need."),
    _gauge("prefixes_compressed", "Boundaries of which a part is left in quantised form alone, on disk."),
    _gauge("prefixes_partial_offload", "Boundaries of which a part, or all, lies on disk alone."),
    _gauge("prefixes_full_restore", "Boundaries that lie in memory again."),
    _gauge("prefixes_gone", "Boundaries of which something is kept, and a part nowhere."),
    _gauge("prefixes_approx", "Boundaries of these that are approximations."),
    _gauge("disk_bytes", "Bytes of live records on disk."),
    _gauge("disk_cap_bytes", "Bytes that all records may have."),
    _gauge("disk_quantised_records", "Records on disk that hold their objects quantised."),
    _gauge("disk_quantised_bytes", "Bytes of these."),
    _gauge("disk_file_bytes", "Bytes of all data files."),
    _gauge("disk_dead_bytes", "Bytes of data files that hold nothing alive."),
    _gauge("disk_segments", "Data files."),
    _gauge("disk_direct", "1 if records are read and written with direct I/O."),
    _gauge("disk_read_only", "1 if the disk tier takes no writes."),
    _count("disk_records_damaged", "Records that start, scrubber or cleaner found damaged."),
    _count("disk_records_unread", "Reads of the scrubber and the cleaner that the system refused."),
    _gauge("disk_writes_waiting", "Offloads that wait for the cleaner to make room."),
    _count("disk_removed_segments", "Dead data files that were removed."),
    _count("disk_removed_bytes", "Bytes of these."),
    _count("cleaned_records", "Live records that were copied out of files that are mostly dead."),
    _count("cleaned_bytes", "Bytes of these."),
    _count("scrub_passes", "Passes of the scrubber that ended."),
    _gauge("scrub_segment", "Data file that is being scrubbed, 0 between passes."),
    _count("scrub_records", "Records that were scrubbed."),
    _count("scrub_bytes", "Bytes of these."),
    _gauge("scrub_paused", "1 while the scrubber is paused."),
    _gauge("restored_bytes_per_second", "How fast restores were so far, 0 before the first."),
    _gauge("restores_failed_lately", "Restores that failed within degrade_seconds."),
    _gauge("degraded", "1 while restores have stopped."),
    *_queue("restore", "reads for which somebody waits"),
    *_queue("promotion", "reads ahead of need"),
    *_queue("offload", "writes to disk"),
    *_queue("cleaning", "records that are given back"),
    _gauge("warm_running", "1 while a warm-up runs."),
    _gauge("warm_seen", "Prefixes that the latest warm-up has looked at."),
    _gauge("warm_total", "Prefixes among which it chooses."),
    _count("warm_prefixes", "Prefixes that warm-ups have brought."),
    _count("warm_bytes", "Bytes that warm-ups have brought."),
    _gauge("jobs", "Jobs that the log knows."),
    _gauge("jobs_copy", "Copies under way."),
    _gauge("jobs_disk", "Disk jobs under way."),
    _gauge("jobs_read", "Reads under way."),
    _gauge("jobs_hash", "Verifications under way."),
    _gauge("jobs_arena", "Arenas being made."),
    _gauge("jobs_tensor", "Jobs of the tensor worker under way."),
    _gauge("jobs_upkeep", "Upkeep of the disk under way."),
    _gauge("tensor_process", "1 while the tensor worker has a process."),
    _gauge("tensor_gpu", "1 if the tensor worker is to work on a GPU."),
    _count("tensor_lost", "Processes of the tensor worker that died, hung or did not come up."),
    *_tensor("convert", "conversions between page formats"),
    *_tensor("quantise", "objects that are quantised, on a GPU alone"),
    *_tensor("dequantise", "objects that are made of quantised records, on a GPU alone"),
    _gauge("connections", "Connections."),
    _gauge("requests_in_flight", "Requests without an answer."),
    _gauge("queue_commands", "Commands that wait for the writer."),
    _gauge("queue_parked", "Commands that wait for jobs."),
    _gauge("queue_waiting", "Replies that wait for the log."),
    _gauge("loop_lag_micros", "How late the event loop was in its latest second.", "loop_lag_seconds", 1_000_000),
    _gauge("canary_seconds", "Seconds between two passes of the canary, 0 if there are none."),
    _count("canary_passes", "Passes of the canary."),
    _count("canary_failures", "Passes that failed."),
    _gauge("canary_failing", "1 if the latest pass failed, or none has ended well for three intervals."),
    _gauge("canary_age_ms", "Since the latest pass that ended well, or since the start.", "canary_age_seconds", 1000),
    _gauge("canary_micros", "How long the latest pass that ended well took.", "canary_latency_seconds", 1_000_000),
    _count("decisions", "Commands that were decided."),
    _count("decision_faults", "Commands that ended in an exception: bugs."),
    _gauge("log_written_seq", "Last event that survives a crash of the daemon."),
    _gauge("log_durable_seq", "Last event that survives a power cut."),
    _gauge("log_spares", "Spare segments of the log."),
)
"""All metrics that a status report tells, in the order of the page."""
