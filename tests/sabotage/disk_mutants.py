"""Mutants of what goes to disk and comes back by itself: whom it serves, and what it may not push out."""

from sabotage.mutants import CORE, Mutant

__all__ = ["DISK_MUTANTS"]

WRITE = "tests/unit/core/test_disk_write.py"
DEGRADED = "tests/unit/core/test_degraded.py"
WARM = "tests/unit/core/test_warm.py"
QUEUE = "tests/unit/server/test_work_queue.py"
LOSSY = "tests/unit/core/test_lossy.py"

DISK_MUTANTS = (
    Mutant(
        "what an engine asked for pushed out",
        f"{CORE}/copies/decide_room.py",
        "                    if self._unasked_of and prefix.marks & ASKED:\n                        continue\n",
        "",
        f"{WRITE}::test_what_was_read_pushes_out_the_oldest_that_nobody_asked_for",
    ),
    Mutant(
        "pushed out by what was never read",
        f"{CORE}/copies/decide_write.py",
        "        if self._command.tries or not _is_read(writing.known, at):\n",
        "        if self._command.tries:\n",
        f"{WRITE}::test_what_was_never_read_pushes_nothing_out",
    ),
    Mutant(
        "no end to what is on its way to disk",
        f"{CORE}/copies/decide_write.py",
        "        return self.bytes >= config.write_bytes and self.written.get(tenant, 0) >= own\n",
        "        return False\n",
        f"{WRITE}::test_memory_never_waits_for_a_disk_that_hangs",
    ),
    Mutant(
        "restores begun while they have stopped",
        f"{CORE}/copies/decide_disk.py",
        "    require_restores(state)\n",
        "",
        f"{DEGRADED}::test_memory_hits_go_on_and_verdicts_say_why",
    ),
    Mutant(
        "offered while restores have stopped",
        f"{CORE}/lookup/court.py",
        "        if isinstance(on_disk, Judged) and self.state.degraded:\n",
        "        if False:\n",
        f"{DEGRADED}::test_memory_hits_go_on_and_verdicts_say_why",
    ),
    Mutant(
        "evicted for a warm-up",
        f"{CORE}/copies/decide_warm.py",
        "    if admission.victims:\n        return over\n",
        "",
        f"{WARM}::test_a_warm_up_evicts_nothing",
    ),
    Mutant(
        "abandoned though another waits",
        "daemon/kvledgerd/loop/interest.py",
        "            if not waiting:\n",
        "            if True:\n",
        f"{QUEUE}::test_a_job_is_abandoned_with_the_last_connection_that_waits",
    ),
    Mutant(
        "an approximation forgotten when its last exact copy goes",
        f"{CORE}/index.py",
        "        elif not self.memory & bit and self.precision(slot):\n            self.approx |= bit\n",
        "",
        f"{LOSSY}::test_a_caller_without_approx_misses_and_is_told_why",
    ),
    Mutant(
        "exact because it was computed, whatever over",
        f"{CORE}/units/exactness.py",
        "return any(offer.approx and offer.ready for offer in lease.offers)\n",
        "return False\n",
        f"{LOSSY}::test_what_is_computed_over_an_approximate_hit_is_approximate",
    ),
    Mutant(
        "approximations that no exact commit replaces",
        f"{CORE}/units/decide_units.py",
        "(cell.memory | cell.disk) & (-1 if approx else ~cell.approx)",
        "cell.memory | cell.disk",
        f"{LOSSY}::test_an_exact_copy_takes_the_place_of_an_approximation",
    ),
    Mutant(
        "damaged memory quantised",
        "daemon/kvledgerd/workers/disk_jobs.py",
        "            if fingerprint_of(payload) != fingerprint:\n",
        "            if False:\n",
        f"{LOSSY}::test_bytes_that_went_bad_in_memory_are_not_quantised",
    ),
    Mutant(
        "restores that nobody waited for counted as failed",
        "daemon/kvledgerd/loop/ended_work.py",
        'words - {"", _CANCELLED}',
        'words - {""}',
        "tests/unit/core/test_core_ended_work.py::test_a_restore_is_counted_by_kind_and_by_what_it_brought",
    ),
)
