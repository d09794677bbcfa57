"""Lies in the verdict and in what keeps leases true, each with the test by name that has to catch it.

Each breaks one rule of section 5 or 6 of the design. The tests named here are short and say the rule in one sentence;
that random histories and the exploration of small scopes see such faults too is shown in `property` and `model`.
"""

from __future__ import annotations

from sabotage.mutants import Mutant

__all__ = ["VERDICT_MUTANTS"]

CORE = "daemon/kvledgerd/core"
RULES = "tests/unit/core/test_core_verdict_rules.py"
CHOICE = "tests/unit/core/test_core_verdict_choice.py"
CLASSES = "tests/fault/test_promised_classes.py"
HOLDING = "tests/cases/test_cases_holding.py"

VERDICT_MUTANTS = (
    Mutant(
        "window one token short",
        "client/kvledger/geometry.py",
        "return spec.window - 1 + spec",
        "return spec.window - 2 + spec",
        f"{RULES}::test_a_window_needs_all_of_its_tokens_but_one[66-2]",
    ),
    Mutant(
        "speculative unit applied twice",
        "client/kvledger/geometry.py",
        "- 1 + spec.speculative_units * spec.page_tokens",
        "- 1 + 2 * spec.speculative_units * spec.page_tokens",
        f"{RULES}::test_a_speculative_group_needs_each_unit_once[1]",
    ),
    Mutant(
        "halo forgotten",
        "client/kvledger/geometry.py",
        "or not spec.coupled_to or spec.halo_rows:",
        "or not spec.coupled_to:",
        f"{RULES}::test_a_halo_is_needed_where_the_tail_is_empty",
    ),
    Mutant(
        "coupling ignored",
        f"{CORE}/kinds/indexer_state.py",
        "    if look.coupled[group] < at.depth:\n",
        "    if False:\n",
        f"{RULES}::test_keys_of_another_commit_cut",
    ),
    Mutant(
        "leave ignored",
        f"{CORE}/lookup/court.py",
        "self.limit = request.tokens - request.leave",
        "self.limit = request.tokens",
        f"{RULES}::test_what_is_left_to_the_caller_is_never_handed_out[512-1-256]",
    ),
    Mutant(
        "caller's step ignored",
        f"{CORE}/lookup/court.py",
        "        if at.position % self.request.align:\n",
        "        if False:\n",
        f"{RULES}::test_layout_and_caller_are_told_apart_where_a_step_cuts",
    ),
    Mutant(
        "group that is not cacheable asked",
        "client/kvledger/geometry.py",
        "for i, g in enumerate(layout.groups) if g.cacheable]",
        "for i, g in enumerate(layout.groups)]",
        f"{RULES}::test_a_group_that_is_not_cacheable_takes_no_part",
    ),
    Mutant(
        "one owner's state counted for every layer",
        "client/kvledger/layout.py",
        "return len(self.owner_layers) or len(self.layers)",
        "return len(self.layers)",
        f"{RULES}::test_an_owner_serves_all_its_layers",
    ),
    Mutant(
        "boundary of another layout accepted",
        f"{CORE}/lookup/court.py",
        "for node in self.path for cell in node.boundaries if cell.layout == number]",
        "for node in self.path for cell in node.boundaries]",
        f"{RULES}::test_the_boundary_of_another_layout_is_not_ours",
    ),
    Mutant(
        "reason of the deepest boundary given to those before",
        f"{CORE}/lookup/court.py",
        "            self.turns |= self._first_replays()\n",
        "            pass\n",
        f"{CHOICE}::test_a_replay_is_offered_only_where_the_prompt_is_longer",
    ),
    Mutant(
        "restores that cost more than computing offered",
        f"{CORE}/lookup/choice.py",
        "        if not self.has_rates:\n",
        "        if True:\n",
        f"{CHOICE}::test_a_dear_restore_alone_is_a_miss_with_its_reason",
    ),
    Mutant(
        "exactness not asked in a tie",
        f"{CORE}/lookup/choice.py",
        "judged.exactness is not Exactness.EXACT, not judged.ready",
        "False, not judged.ready",
        f"{CHOICE}::test_an_exact_residue_goes_before_a_block_that_saves_as_much_by_a_replay",
    ),
    Mutant(
        "cap checked when it is passed",
        f"{CORE}/placement/caps.py",
        "if wanted > 0 and used + wanted > cap:",
        "if wanted > 0 and used > cap:",
        f"{HOLDING}::test_f03_v47_more_than_is_free_evicts_or_is_refused_with_numbers",
    ),
    Mutant(
        "generation not compared",
        "client/kvledger/lent_view.py",
        "if not handle.is_current]",
        "if False]",
        "tests/unit/client/test_hit.py::test_moved_generation_is_found",
    ),
    Mutant(
        "lease that pins nothing",
        f"{CORE}/lookup/apply_leases.py",
        "    for cell in lease.cells():\n        cell.pins += 1\n",
        "",
        f"{HOLDING}::test_v21_f02_a_leased_hit_stays_until_it_is_released",
    ),
    Mutant(
        "unverified bytes handed out",
        f"{CORE}/lookup/decide_lookup.py",
        "    if unverified:\n",
        "    if False:\n",
        f"{CLASSES}::test_memory_that_outlived_the_daemon_is_verified_before_it_is_handed_out",
    ),
    Mutant(
        "receipt of another engine accepted",
        f"{CORE}/receipts.py",
        "    if lease is None or lease.engine != caller.engine:\n",
        "    if lease is None:\n",
        "tests/unit/core/test_core_leases.py::test_a_lease_answers_to_its_owner_alone",
    ),
)  # fmt: skip  a table
