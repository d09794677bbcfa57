"""Mutants of what moving within memory promises: never under a holder, never unnoticed. See `sabotage.mutants`."""

from sabotage.mutants import CORE, Mutant

__all__ = ["PLACEMENT_MUTANTS"]

RELOCATION = "tests/unit/core/test_relocation.py"
DECIDED = f"{CORE}/copies/decide_relocation.py"

PLACEMENT_MUTANTS = (
    Mutant(
        "moved under a lease",
        DECIDED,
        "    if cell.pins > own[cell.id]:\n",
        "    if False:\n",
        f"{RELOCATION}::test_what_was_leased_meanwhile_stays",
    ),
    Mutant(
        "moved bytes not compared",
        DECIDED,
        "found != cell.fingerprint(slot)",
        "not found",
        f"{RELOCATION}::test_damage_is_not_moved",
    ),
    Mutant(
        "moved under the generation of the old place",
        f"{CORE}/copies/apply_relocation.py",
        "*job.places[index], job.generation)",
        "*job.places[index], job.sources[index][2])",
        f"{RELOCATION}::test_new_places_bear_a_generation_of_their_own",
    ),
    Mutant(
        "moved beyond a cap",
        f"{CORE}/placement/compaction.py",
        "        if moves is not None and _fits(state, tenant, kind, moves):\n            return moves\n",
        "        if moves is not None:\n            return moves\n",
        f"{RELOCATION}::test_a_cap_is_not_passed_by_moving",
    ),
    Mutant(
        "moved again and again for one request",
        f"{CORE}/placement/relocation.py",
        "    return any(job in state.outcomes for job in ask.parked)\n",
        "    return False\n",
        f"{RELOCATION}::test_one_request_waits_for_one_relocation",
    ),
    Mutant(
        "another life of the object moved",
        DECIDED,
        "    if not cell.memory >> slot & 1 or here != job.sources[index]:\n",
        "    if not cell.memory >> slot & 1:\n",
        f"{RELOCATION}::test_another_life_of_an_object_stays",
    ),
)
