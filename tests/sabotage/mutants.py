"""Mutants: small lies in the code that keeps promises, each with the test that has to catch it.

A mutant is a text that stands exactly once in a source file, and what takes its place. The fast test beside this table
checks that every text still stands there and that every named test exists, so the table can not fall behind the code;
the slow one puts each lie in place and runs the named test, which has to fail.
"""

from __future__ import annotations

from typing import NamedTuple

LOG = "storage/kvledger_storage/log"
DISK = "storage/kvledger_storage/disk"
SHELL = "daemon/kvledgerd"
CORE = "daemon/kvledgerd/core"
SNAPSHOTS = "daemon/kvledgerd/snapshots"

REPORT = "tests/property/test_log_crash.py::test_a_report_is_true_at_the_moment_at_which_it_is_made"
DAMAGE = "tests/unit/log/test_log_damage.py"
FAULTS = "tests/unit/log/test_log_faults.py"
CLASSES = "tests/fault/test_promised_classes.py"
LOOP = "tests/unit/server/test_writer_loop.py"
SNAPSHOT_TESTS = "tests/fault/test_snapshots.py"
HOLDING = "tests/cases/test_cases_holding.py"
DISK_CUT = "tests/property/test_disk_power_cut.py::test_power_cuts_lose_nothing_that_was_reported"


class Mutant(NamedTuple):
    """One lie: what it is, the file, the text that it replaces and by what, and the test that kills it."""

    lie: str
    file: str
    text: str
    replacement: str
    test: str


TOPOLOGY = "tests/unit/core/test_topology.py"
WATCH = "tests/unit/server/test_topology_watch.py"

MUTANTS = (
    Mutant("sync dropped", f"{LOG}/appender.py", "        self._io.fdatasync(self._fd)\n", "", REPORT),
    Mutant(
        "mark ahead of the sync",
        f"{LOG}/appender.py",
        "        self._io.fdatasync(self._fd)\n        self._mark.write(self.last_seq)\n",
        "        self._mark.write(self.last_seq)\n        self._io.fdatasync(self._fd)\n",
        f"{FAULTS}::test_the_mark_is_never_ahead_of_a_sync",
    ),
    Mutant(
        "failed sync tried again",
        f"{LOG}/appender.py",
        "        self._io.fdatasync(self._fd)\n",
        "        try:\n            self._io.fdatasync(self._fd)\n        except OSError:\n"
        "            self._io.fdatasync(self._fd)\n",
        f"{FAULTS}::test_pages_that_a_failed_sync_lost_are_written_again",
    ),
    Mutant(
        "next segment named before this one is synced",
        f"{LOG}/appender.py",
        "    def _rotate(self) -> None:\n        self.sync()\n",
        "    def _rotate(self) -> None:\n",
        REPORT,
    ),
    Mutant(
        "directory not synced after a segment got its name",
        f"{LOG}/spares.py",
        "        self._io.rename(spare, path)\n        self._io.sync_directory(self._directory)\n",
        "        self._io.rename(spare, path)\n",
        REPORT,
    ),
    Mutant(
        "segment named before its header is synced",
        f"{LOG}/spares.py",
        "            write_all(self._io, fd, encode_segment_header(header), 0)\n            self._io.fdatasync(fd)\n",
        "            write_all(self._io, fd, encode_segment_header(header), 0)\n",
        REPORT,
    ),
    Mutant(
        "full disk taken for a failure",
        f"{LOG}/spares.py",
        "_FULL: Final = (errno.ENOSPC, errno.EDQUOT)",
        "_FULL: Final = ()",
        "tests/unit/log/test_log_writer.py::test_a_full_disk_is_no_error_while_spares_last",
    ),
    Mutant(
        "durable told before the sync",
        f"{LOG}/writer.py",
        "                    self._appender.sync()\n",
        "                    self._on_reached(self._appender.last_seq, self._appender.last_seq)\n"
        "                    self._appender.sync()\n",
        REPORT,
    ),
    Mutant(
        "written told before the write",
        f"{LOG}/writer.py",
        "        appender.append(frame, first_seq + count - 1)\n",
        "        self._on_reached(first_seq + count - 1, appender.synced_seq)\n"
        "        appender.append(frame, first_seq + count - 1)\n",
        f"{FAULTS}::test_any_operation_may_fail[EIO-False]",
    ),
    Mutant(
        "synced_through says more than was synced",
        f"{LOG}/writer.py",
        "            synced_through=appender.synced_seq,\n",
        "            synced_through=appender.last_seq,\n",
        "tests/unit/log/test_log_writer.py::test_frames_say_what_was_synced_before_them",
    ),
    Mutant(
        "writer goes on after a failure",
        f"{LOG}/writer.py",
        "                self._failure = error\n                self._pending, self._joined = [], []\n",
        "                self._pending, self._joined = [], []\n",
        "tests/unit/log/test_log_writer.py",
    ),
    Mutant(
        "a hash that was overtaken is taken for the next frame's",
        f"{LOG}/appender.py",
        "            self._link = (frame, chain)\n",
        "            self._link = (self._frame, chain)\n",
        "tests/unit/log/test_log_writer.py::test_a_hash_that_was_overtaken_is_not_that_of_the_next_frame",
    ),
    Mutant(
        "payload CRC skipped",
        f"{LOG}/frame.py",
        "    if computed != header.payload_crc:\n",
        "    if False:\n",
        f"{DAMAGE}::test_every_flipped_bit_of_the_last_segment_is_found",
    ),
    Mutant(
        "header CRC skipped",
        f"{LOG}/frame.py",
        "    if computed != crc:\n",
        "    if False:\n",
        f"{DAMAGE}::test_every_flipped_bit_of_the_last_segment_is_found",
    ),
    Mutant(
        "chain of frames not compared",
        f"{LOG}/segment.py",
        "        elif header.previous_chain != self.chain and not self._skipped:\n",
        "        elif False:\n",
        f"{DAMAGE}::test_history_from_a_fork_is_refused_by_the_chain[frame]",
    ),
    Mutant(
        "chain of segments not compared",
        f"{LOG}/inspection.py",
        "    if header.previous_chain != found.chain:\n",
        "    if False:\n",
        f"{DAMAGE}::test_history_from_a_fork_is_refused_by_the_chain[segment]",
    ),
    Mutant(
        "foreign segment taken for our own",
        f"{LOG}/inspection.py",
        "    if header.log_id != found.identity.log_id:\n",
        "    if False:\n",
        f"{DAMAGE}::test_a_foreign_segment_is_refused",
    ),
    Mutant(
        "mark not asked",
        f"{LOG}/mark.py",
        "    return max(_read_slots(io, directory, log_id))\n",
        "    return 0\n",
        f"{DAMAGE}::test_vanished_synced_frames_are_refused_by_the_mark",
    ),
    Mutant(
        "boot not asked",
        f"{LOG}/inspection.py",
        "        same_boot=any(header.boot_id == boot_id for header in later),\n",
        "        same_boot=False,\n",
        f"{DAMAGE}::test_same_boot_and_other_boot_are_judged_apart",
    ),
    Mutant(
        "recovered frames not made durable",
        f"{LOG}/store.py",
        "        sync_recovered(place.io, end)\n",
        "",
        f"{FAULTS}::test_pages_that_a_failed_sync_lost_are_written_again",
    ),
    Mutant(
        "recovered frames synced and not written again",
        f"{LOG}/repair.py",
        "        write_all(io, fd, scan.data[end.unsynced_offset : scan.offset], end.unsynced_offset)\n",
        "",
        f"{FAULTS}::test_pages_that_a_failed_sync_lost_are_written_again",
    ),
    Mutant(
        "torn tail thrown away",
        f"{LOG}/repair.py",
        "    publish_file(io, saved_to, tail)\n",
        "",
        f"{DAMAGE}::test_the_repaired_tail_is_kept_and_the_report_says_where",
    ),
    Mutant(
        "second process let in",
        f"{LOG}/lock.py",
        "        if io.lock(fd):\n",
        "        if io.lock(fd) or fd:\n",
        "tests/unit/log/test_log_store.py::test_a_second_process_is_refused",
    ),
    Mutant(
        "records reported before their sync",
        f"{DISK}/batch.py",
        "            self._io.fdatasync(fd)\n",
        "",
        DISK_CUT,
    ),
    Mutant(
        "directory of records not synced",
        f"{DISK}/batch.py",
        "            self._io.sync_directory(self._directory)\n",
        "            pass\n",
        DISK_CUT,
    ),
    Mutant(
        "fingerprint of a record not compared",
        f"{DISK}/verify.py",
        "    if fingerprint_of(record.payload) != expect.fingerprint:\n",
        "    if False:\n",
        "tests/unit/disk/test_disk_hostile.py::test_a_flipped_bit_behind_the_header_is_damage",
    ),
    Mutant(
        "reply leaves before its class",
        f"{SHELL}/loop/writer.py",
        "        elif decision.ack is Ack.SESSION:\n",
        "        elif True:\n",
        f"{LOOP}::test_replies_wait_for_their_class",
    ),
    Mutant(
        "read shows what is not written yet",
        f"{SHELL}/loop/writer.py",
        "            ack, seq = max(decision.ack, Ack.WRITTEN), self._target(decision.ack, has_events=False)\n",
        "            ack, seq = Ack.SESSION, 0\n",
        f"{LOOP}::test_reads_show_nothing_that_a_crash_could_take_back",
    ),
    Mutant(
        "effect overtakes those that wait",
        f"{SHELL}/loop/writer.py",
        "self._acks.run_at(max(ack, Ack.WRITTEN), seq, partial(self._carrier.carry, effect))\n",
        "self._acks.run_at(ack, seq, partial(self._carrier.carry, effect))\n",
        f"{LOOP}::test_effects_never_overtake_those_that_wait",
    ),
    Mutant(
        "loop acknowledges after the log has failed",
        f"{SHELL}/loop/writer.py",
        "        if not self._stopped:\n            with self._turn:\n",
        "        if True:\n            with self._turn:\n",
        f"{LOOP}::test_failed_logs_stop_all_acknowledgement",
    ),
    Mutant(
        "generation moved before the reservation is written",
        f"{CORE}/units/decide_units.py",
        "    return Decision((*first, event), reply, Ack.WRITTEN, ((Ack.WRITTEN, moved),))\n",
        "    return Decision((*first, event), reply, Ack.WRITTEN, ((Ack.SESSION, moved),))\n",
        f"{CLASSES}::test_generations_move_after_the_reservation_is_written",
    ),
    Mutant(
        "commit acknowledged before it is written",
        f"{CORE}/units/decide_commits.py",
        "return Decision(tuple(events), reply, Ack.WRITTEN, effects)\n",
        "return Decision(tuple(events), reply, Ack.SESSION, effects)\n",
        f"{CLASSES}::test_a_commit_is_answered_when_it_is_written",
    ),
    Mutant(
        "layout acknowledged before it is durable",
        f"{CORE}/incarnation/decide_life.py",
        "    return Decision((*added, event), Registered(event.number, layout.digest), Ack.DURABLE)\n",
        "    return Decision((*added, event), Registered(event.number, layout.digest), Ack.WRITTEN)\n",
        f"{CLASSES}::test_identity_is_answered_when_it_is_durable",
    ),
    Mutant(
        "offload acknowledged before it is durable",
        f"{CORE}/copies/decide_disk.py",
        "return Decision((event,), ack=Ack.DURABLE, effects=effects)\n",
        "return Decision((event,), ack=Ack.WRITTEN, effects=effects)\n",
        f"{CLASSES}::test_disk_writes_are_answered_when_they_are_durable",
    ),
    Mutant(
        "records dropped before that is durable",
        f"{CORE}/copies/records.py",
        "    return ((Ack.DURABLE, DropBlobs(tuple(refs))),) if refs else ()\n",
        "    return ((Ack.WRITTEN, DropBlobs(tuple(refs))),) if refs else ()\n",
        f"{CLASSES}::test_bytes_on_disk_are_destroyed_when_that_is_durable",
    ),
    Mutant(
        "generation base not raised at a start",
        f"{CORE}/incarnation/decide_life.py",
        "        state.serial + SERIAL_STEP,\n",
        "        state.serial,\n",
        f"{CLASSES}::test_receipts_of_a_new_incarnation_lie_far_beyond_those_that_were_logged",
    ),
    Mutant(
        "adopted memory trusted",
        f"{CORE}/incarnation/apply_life.py",
        "        cell.unverified = cell.memory\n",
        "        cell.unverified = 0\n",
        f"{CLASSES}::test_memory_that_outlived_the_daemon_is_verified_before_it_is_handed_out",
    ),
    Mutant(
        "lease leaked when its engine ends",
        f"{CORE}/incarnation/apply_life.py",
        "    for number in list(engine.leases):\n        end_lease(state, state.leases[number])\n",
        "",
        f"{HOLDING}::test_v45_l22_pins_end_with_their_owner",
    ),
    Mutant(
        "reservation leaked when its engine ends",
        f"{CORE}/incarnation/apply_life.py",
        "    for number in list(engine.units):\n        give_up_unit(state, state.units[number])\n",
        "",
        f"{HOLDING}::test_v45_f01_what_a_dead_writer_handed_in_is_nowhere",
    ),
    Mutant(
        "snapshot of another past taken",
        f"{SNAPSHOTS}/choice.py",
        "        elif _next_names(io, data, found.seq, end) != found.chain:\n",
        "        elif False:\n",
        f"{SNAPSHOT_TESTS}::test_a_wrong_snapshot_is_passed_over[of another chain]",
    ),
    Mutant(
        "digest of a snapshot not compared",
        f"{SNAPSHOTS}/choice.py",
        "        if digest == snapshot.digest:\n",
        "        if digest >= 0:\n",
        f"{SNAPSHOT_TESTS}::test_a_wrong_snapshot_is_passed_over[of another state]",
    ),
    Mutant(
        "snapshot with a flipped bit taken",
        "storage/kvledger_storage/snapshot.py",
        "    if len(body) != length or _sum(body) != total:\n",
        "    if len(body) != length:\n",
        f"{SNAPSHOT_TESTS}::test_a_wrong_snapshot_is_passed_over[flipped]",
    ),
    Mutant(
        "wrong snapshot ends the daemon",
        f"{SHELL}/life/recovery.py",
        "        except LogRotError as error:\n            _log.exception(",
        "        except LogLockedError as error:\n            _log.exception(",
        f"{SNAPSHOT_TESTS}::test_a_snapshot_that_leads_elsewhere_costs_a_whole_replay",
    ),
    Mutant(
        "leases left out of the snapshot",
        f"{SNAPSHOTS}/encode.py",
        "        [_plain_lease(lease) for lease in state.leases.values()],\n",
        "        [],\n",
        "tests/property/test_log_snapshot.py::test_a_state_outlives_its_snapshot",
    ),
    Mutant(
        "commits taken while the disk is full",
        f"{SHELL}/loop/log_space.py",
        "        if isinstance(command.body, refused):\n",
        "        if False:\n",
        "tests/fault/test_full_disk.py::test_a_full_disk_refuses_commits_and_serves_look_ups",
    ),
    Mutant(
        "begun segment taken for a full disk",
        f"{LOG}/spares.py",
        "        made = full = False\n",
        "        made, full = False, True\n",
        "tests/unit/log/test_log_writer.py::test_a_begun_segment_is_no_full_disk",
    ),
    Mutant(
        "checkpoint not compared",
        f"{CORE}/apply.py",
        "    if state.digest() != event.digest:\n",
        "    if False:\n",
        f"{CLASSES}::test_a_checkpoint_that_disagrees_ends_a_replay",
    ),
    Mutant(
        "topology that pins nothing",
        f"{CORE}/topology/apply_topology.py",
        "    for cell in _without(after, before):\n        pin(cell)\n",
        "",
        f"{TOPOLOGY}::test_what_a_topology_names_is_not_evicted_after_the_lease",
    ),
    Mutant(
        "damage under a graph is not told",
        f"{CORE}/lookup/decide_verification.py",
        'broken = breaks(state, wrong, "its bytes are not the committed ones")',
        "broken = breaks(state, [], '')",
        f"{TOPOLOGY}::test_damage_under_a_topology_breaks_it_and_nothing_comes_into_its_place",
    ),
    Mutant(
        "what graphs read is not verified after a start",
        f"{CORE}/topology/decide_topology.py",
        "for slot in bits(cell.unverified)]",
        "for slot in bits(0)]",
        f"{TOPOLOGY}::test_a_restart_with_arenas_keeps_addresses_and_verifies_them",
    ),
    Mutant(
        "topology changed outside of its window",
        f"{CORE}/topology/decide_topology.py",
        "    _require_window(topology)\n",
        "",
        f"{TOPOLOGY}::test_a_change_outside_of_a_window_is_refused",
    ),
    Mutant(
        "topology owned by whoever shows the engine id",
        f"{CORE}/topology/decide_topology.py",
        "if (one.key, one.tenant, one.uid) == owner]",
        "if one.key == owner[0]]",
        f"{TOPOLOGY}::test_another_uid_with_the_same_engine_id_owns_nothing",
    ),
    Mutant(
        "a process taken for another with its pid",
        f"{SHELL}/server/processes.py",
        "    if identified(pid, pidfd) == (pid, started):\n",
        "    if identified(pid, pidfd):\n",
        f"{WATCH}::test_a_pid_that_was_given_to_another_process_is_not_the_process",
    ),
    Mutant(
        "late put that may still be published",
        f"{CORE}/units/decide_units.py",
        'events = (UnitAborted(request.unit, "a copy did not end in time"),) if running else ()',
        "events = ()",
        "tests/unit/core/test_deadlines.py::test_a_put_that_is_late_gives_its_unit_up",
    ),
)  # fmt: skip  a table
