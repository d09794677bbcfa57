"""Mutants of what units promise: tickets, usable boundaries, material. See `sabotage.mutants`."""

from sabotage.mutants import CORE, Mutant

__all__ = ["UNIT_MUTANTS"]

TICKETS = "tests/unit/core/test_core_tickets.py"
USABILITY = "tests/unit/core/test_core_usability.py"
MATERIAL = "tests/unit/core/test_core_material.py"

UNIT_MUTANTS = (
    Mutant(
        "published without the last ticket",
        f"{CORE}/units/decide_commits.py",
        "    if len(tickets) < len(left):\n",
        "    if len(tickets) < len(left) - 1:\n",
        f"{TICKETS}::test_a_unit_is_published_with_its_last_ticket",
    ),
    Mutant(
        "ticket of another connection committed",
        f"{CORE}/units/tickets.py",
        "    if holder_of(unit, ticket) != caller.connection:\n",
        "    if False:\n",
        f"{TICKETS}::test_a_ticket_is_one_connections",
    ),
    Mutant(
        "dead rank waited for",
        f"{CORE}/units/tickets.py",
        "        if lost or (not left and unit.holder == command.connection):\n",
        "        if not left and unit.holder == command.connection:\n",
        f"{TICKETS}::test_a_rank_that_ends_before_its_commit_ends_the_unit",
    ),
    Mutant(
        "dead rank's commit forgotten",
        f"{CORE}/units/tickets.py",
        "        if ticket not in unit.done:\n",
        "        if True:\n",
        f"{TICKETS}::test_a_rank_that_ends_after_its_commit_costs_nothing",
    ),
    Mutant(
        "boundary on rows that are nowhere",
        f"{CORE}/units/decide_units.py",
        "    check_rows_before(known, path, request.first_block, has)\n",
        "",
        f"{USABILITY}::test_rows_before_the_unit_that_are_nowhere",
    ),
    Mutant(
        "boundary on rows that went meanwhile",
        f"{CORE}/units/usability.py",
        "    found = _lacking(known, unit.path, unit.first_block, stored) if unit.boundary else None\n",
        "    found = None\n",
        f"{USABILITY}::test_rows_that_go_before_the_commit",
    ),
    Mutant(
        "rows under an open unit evicted",
        f"{CORE}/units/apply_units.py",
        "            pinned[last.id] = last\n",
        "            pass\n",
        f"{USABILITY}::test_what_a_unit_stands_on_is_kept_while_it_is_filled",
    ),
    Mutant(
        "boundaries use nothing",
        f"{CORE}/units/material.py",
        "    if boundary or (known.rows_suffice and _is_whole(known, blocks)):\n",
        "    if known.rows_suffice and _is_whole(known, blocks):\n",
        f"{MATERIAL}::test_blocks_without_a_boundary_are_material_until_one_stands_on_them",
    ),
)
