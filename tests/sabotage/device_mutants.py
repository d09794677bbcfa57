"""Mutants of what device pools promise: whose pages they are, what keeps them, and when they are free."""

from sabotage.mutants import CORE, Mutant

__all__ = ["DEVICE_MUTANTS"]

DEVICE = "tests/unit/core/test_core_device.py"
CASES = "tests/cases/test_cases_device.py"
CLIENT = "client/kvledger"

DEVICE_MUTANTS = (
    Mutant(
        "device pages given while a lease covers them",
        f"{CORE}/device_pools/device.py",
        "        if cell.id in self.pins:\n            return True\n",
        "",
        f"{DEVICE}::test_a_lease_keeps_device_copies_where_they_are",
    ),
    Mutant(
        "one engine told of another's device",
        f"{CORE}/state.py",
        "pools = (self.device_pools[number] for number in asking.pools)",
        "pools = iter(self.device_pools.values())",
        f"{DEVICE}::test_what_was_filled_is_ready_for_its_engine_and_a_miss_for_others",
    ),
    Mutant(
        "device caps never asked",
        f"{CORE}/device_pools/device_room.py",
        "    search.keep_caps()\n",
        "",
        f"{DEVICE}::test_caps_hold_in_the_decision_that_takes_places",
    ),
    Mutant(
        "speculative tokens filled",
        f"{CORE}/device_pools/decide_pages.py",
        "    _check_settled(pool.known, asked, request.settled)\n",
        "",
        f"{DEVICE}::test_only_settled_units_are_filled",
    ),
    Mutant(
        "a window page freed one token early",
        f"{CORE}/device_pools/decide_pages.py",
        "        first = geometry.window_start(group, at.position) // ",
        "        first = geometry.window_start(group, at.position + 1) // ",
        f"{CASES}::test_v17_v27_a_window_page_is_freed_on_settled_tokens_only",
    ),
    Mutant(
        "hits evicted for their own unit",
        f"{CORE}/device_pools/device_room.py",
        " or any(map(self._protects, chosen)):\n",
        ":\n",
        f"{CASES}::test_v16_hits_are_pinned_before_pages_are_given",
    ),
    Mutant(
        "memory set aside twice",
        f"{CORE}/device_pools/decide_device.py",
        "        if overlap or other.memory == event.memory:\n",
        "        if overlap:\n",
        f"{CASES}::test_v24_memory_has_one_layout[False]",
    ),
    Mutant(
        "regions without regard to the pool's address",
        f"{CLIENT}/device_regions.py",
        "end + -(address + end) % alignment",
        "end + -end % alignment",
        f"{DEVICE}::test_places_are_aligned_for_their_group",
    ),
    Mutant(
        "a pool that outlives its engine",
        f"{CORE}/incarnation/apply_life.py",
        "    for number in list(engine.pools):\n        end_pool(state, state.device_pools[number])\n",
        "",
        f"{DEVICE}::test_the_end_of_engine_or_incarnation_drops_the_pool",
    ),
    Mutant(
        "keys freed without their rows",
        f"{CORE}/device_pools/decide_pages.py",
        "for one in (slot, partners.get(slot, slot)):",
        "for one in (slot,):",
        f"{DEVICE}::test_coupled_partners_are_freed_together",
    ),
    Mutant(
        "a stale handle taken for a true one",
        f"{CLIENT}/device_view.py",
        "all(table[page] in {0, generation} for page in pages)",
        "any(table[page] in {0, generation} for page in pages)",
        "tests/unit/client/test_device_pool.py::test_the_table_of_generations_counts_whole_objects",
    ),
)
