"""The groups of the fault run: which tests belong to each, and what counts as one case.

A case is one call of the group's judge, a function of the test's module that tries one fault and judges what is left.
Where a test is one case by itself there is no judge. So the counts come from what was done, and not from a constant
that somebody could forget to change.
"""

from __future__ import annotations

from typing import NamedTuple


class Group(NamedTuple):
    """One row of the table: its name, the file, the tests in it (names, as fnmatch takes them), and the judge."""

    name: str
    file: str
    tests: tuple[str, ...] = ("*",)
    judge: str = ""


_DAMAGE = "tests/unit/log/test_log_damage.py"
_CRASH = "tests/property/test_log_crash.py"

GROUPS = (
    Group("log: cut at every byte", _DAMAGE, ("test_every_cut_is_found*",), "check"),
    Group("log: every bit flipped", _DAMAGE, ("test_every_flipped_bit*", "test_flipped_bits_beside*"), "check"),
    Group(
        "log: segments missing, swapped, foreign, forked",
        _DAMAGE,
        ("test_a_*", "test_swapped*", "test_history*", "test_later*", "test_vanished*", "test_same_boot*"),
    ),
    Group("log: recovery table", "tests/unit/log/test_log_table.py", ("test_exactly_one_row_fits*",)),
    Group("log: sector subsets of the last batch", _CRASH, ("test_every_sector_subset*",), "recover_subset"),
    Group("log: simulated power cuts and kills", _CRASH, ("test_*lose*promised*",), "crash_and_recover"),
    Group("log: power cut at the moment of each report", _CRASH, ("test_a_report*",), "cut_after_report"),
    Group(
        "log: n-th operation fails",
        "tests/unit/log/test_log_faults.py",
        ("test_any_operation_may_fail*",),
        "fail_at",
    ),
    Group(
        "log: power cuts while archiving",
        "tests/unit/log/test_log_archive.py",
        ("test_the_order_is_kept*",),
        "cut_archiving",
    ),
    Group("log: failed sync", "tests/unit/log/test_log_faults.py", ("test_pages*", "test_an_interrupted*")),
    Group(
        "disk: simulated power cuts",
        "tests/property/test_disk_power_cut.py",
        ("test_power_cuts*", "test_two_thousand*", "test_a_power_cut_at*"),
        "check",
    ),
    Group(
        "disk: power cuts while cleaning",
        "tests/property/test_disk_cleaning.py",
        ("test_power_cuts*", "test_two_hundred*", "test_power_lost*"),
        "check",
    ),
    Group("disk: index rebuilt without the log", "tests/unit/core/test_disk_rebuild.py"),
    Group(
        "disk: n-th call fails",
        "tests/unit/disk/test_disk_faults.py",
        ("test_no_failing_call*",),
        "check_everything",
    ),
    Group("disk: damaged, swapped and replaced files", "tests/unit/disk/test_disk_hostile.py"),
    Group("disk: files harmed, cleaned and scrubbed under a daemon", "tests/process/test_disk_care.py"),
    Group("daemon: SIGKILL before a system call", "tests/fault/test_kill_at_call.py", ("test_killed*",), "kill_at"),
    Group(
        "daemon: SIGKILL while archiving and retiring",
        "tests/fault/test_kill_while_archiving.py",
        judge="kill_at",
    ),
    Group("daemon: SIGKILL at random under load", "tests/fault/test_kill_under_load.py", judge="kill_now"),
    Group("daemon: restarts, removed and damaged files", "tests/fault/test_cases_restart.py"),
    Group("daemon: log that can not be written", "tests/fault/test_kill_log_failure.py"),
    Group("daemon: archive and retention", "tests/process/test_retention.py"),
    Group("daemon: damaged log at the start", "tests/fault/test_damaged_log.py"),
    Group("daemon: full disk under the log", "tests/fault/test_full_disk.py"),
    Group("daemon: memory held over a damaged log", "tests/fault/test_held_log.py"),
    Group("commands: damaged logs", "tests/fault/test_log_commands.py"),
    Group("commands: each damage, by each command and a start", "tests/fault/test_damage_told.py"),
    Group(
        "snapshots: cut histories",
        "tests/property/test_log_snapshot.py",
        ("test_*hist*", "test_a_state*"),
        "try_history",
    ),
    Group("snapshots: power cuts", "tests/property/test_log_snapshot.py", ("test_power_cuts*",), "written_until"),
    Group("snapshots: damaged, foreign, contradicting", "tests/fault/test_snapshots.py"),
    Group("clients killed holding leases", "tests/fault/test_client_deaths.py", judge="die"),
    Group(
        "protocol: truncations and mutations",
        "tests/property/test_wire_mutations.py",
        ("test_truncations*", "test_mutations*", "test_noise*"),
        "verdict",
    ),
    Group("protocol: every value of every byte", "tests/fault/test_every_byte.py", judge="mutate"),
    Group("replay: hash seeds and Python versions", "tests/fault/test_replay_everywhere.py", judge="judge"),
    Group("promises: class of each acknowledgement", "tests/fault/test_promised_classes.py"),
    Group("sabotage: mutants", "tests/sabotage/test_sabotage.py", ("test_mutant_is_killed*",)),
)
