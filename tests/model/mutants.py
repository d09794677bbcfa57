"""Lies in the verdict and in what keeps leases true, each with the test that has to tell it from the truth.

A mutant is a text that stands exactly once in a source file, and what takes its place. Most are killed by the short
exploration (`test_explore.py`), which is told none of them.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTANTS", "Mutant"]

CORE = "daemon/kvledgerd/core"
PAGED = "tests/model/test_explore.py::test_every_interleaving_keeps_every_promise[paged]"
ALONE = "tests/model/test_explore.py::test_every_interleaving_keeps_every_promise[alone]"
RESIDUE = "tests/model/test_explore.py::test_every_interleaving_keeps_every_promise[residue]"
ONCE = "tests/model/test_explore.py::test_bytes_are_verified_once_for_all_who_wait"
CODE = "tests/process/test_explain.py::test_code_is_documented_at_its_layer"
WINDOW = "tests/model/test_choice.py::test_a_window_needs_one_token_less_than_its_length[65-1]"
COUPLE = "tests/model/test_choice.py::test_half_a_couple_is_replaced_whole"
ROOM = "tests/model/test_choice.py::test_a_leased_state_makes_no_room[window]"
HELD = "tests/model/test_choice.py::test_an_engine_holds_no_more_than_its_cap"
REPLAY = "tests/model/test_choice.py::test_tokens_to_replay_are_tokens_to_compute"


class Mutant(NamedTuple):
    """One lie: what it is, its file, the text that it replaces and by what, and the test that fails with it."""

    lie: str
    file: str
    text: str
    replacement: str
    test: str


MUTANTS = (
    Mutant("window off by one", "client/kvledger/geometry.py", "spec.window - 1 +", "spec.window +", WINDOW),
    Mutant("halo forgotten", "client/kvledger/geometry.py", "or spec.halo_rows:", "or False:", f"{CODE}[halo_missing]"),
    Mutant(
        "coupling ignored",
        f"{CORE}/kinds/indexer_state.py",
        "if look.coupled[group] < at.depth:",
        "if look.coupled[group] < 0:",
        f"{CODE}[indexer_uncoupled]",
    ),
    Mutant(
        "half a couple kept at commit",
        f"{CORE}/units/decide_commits.py",
        "if (index in there) != (partner in there):",
        "if (index in there) is None:",
        COUPLE,
    ),
    Mutant(
        "cap of a kind checked too late",
        f"{CORE}/placement/admission.py",
        "fits, runs = self._fits(kind, wanted), Runs(",
        "fits, runs = self._fits(kind, Amount()), Runs(",
        PAGED,
    ),
    Mutant(
        "generation not moved before bytes are read back",
        f"{CORE}/copies/decide_disk.py",
        "return event, ((Ack.WRITTEN, moved), (Ack.WRITTEN, read))",
        "return event, ((Ack.WRITTEN, read),)",
        PAGED,
    ),
    Mutant(
        "pins ignored when a window makes room",
        f"{CORE}/kinds/rules.py",
        "    if place.is_pinned(cell):\n        return []\n    if not cell.is_block:\n",
        "    if not cell.is_block:\n",
        ROOM,
    ),
    Mutant(
        "pins ignored when an operator evicts",
        f"{CORE}/copies/decide_evict.py",
        "        if cell.pins:\n            kept += 1\n",
        "        if False:\n            kept += 1\n",
        PAGED,
    ),
    Mutant(
        "residue hash ignored",
        f"{CORE}/index.py",
        "cell.residue == residue and cell.residue_hash == residue_hash:",
        "cell.residue == residue:",
        RESIDUE,
    ),
    Mutant(
        "identity layer skipped",
        f"{CORE}/lookup/court.py",
        "early = self._whole_block(at) or self._identity(at)",
        "early = self._whole_block(at)",
        f"{CODE}[identity_mismatch]",
    ),
    Mutant(
        "replay not counted",
        f"{CORE}/lookup/choice.py",
        "return self.position - self.replay",
        "return self.position",
        REPLAY,
    ),
    Mutant(
        "unverified handed out",
        f"{CORE}/lookup/decide_lookup.py",
        "    if unverified:\n",
        "    if not unverified:\n",
        PAGED,
    ),
    Mutant(
        "foreign receipts accepted",
        f"{CORE}/receipts.py",
        "if lease is None or lease.engine != caller.engine:",
        "if lease is None:",
        PAGED,
    ),
    Mutant(
        "lease that pins no boundary",
        f"{CORE}/lookup/apply_leases.py",
        "[_boundary(state, tree, event.layout, offer) if offer.ready else None for offer in event.offers]",
        "[None for _ in event.offers]",
        PAGED,
    ),
    Mutant(
        "wrong bytes trusted after verification",
        f"{CORE}/lookup/decide_verification.py",
        "if found == cell.fingerprint(slot):",
        "if found:",
        f"{CODE}[bytes_damaged]",
    ),
    Mutant(
        "the same bytes verified twice",
        f"{CORE}/lookup/decide_verification.py",
        "todo = [(c, s) for c, s in objects if (c.id, s) not in running]",
        "todo = objects",
        ONCE,
    ),
    Mutant(
        "tokens that must be left are handed out",
        f"{CORE}/lookup/court.py",
        "self.limit = request.tokens - request.leave",
        "self.limit = request.tokens",
        f"{CODE}[leave]",
    ),
    Mutant(
        "leases without a cap",
        f"{CORE}/lookup/lease_room.py",
        "if len(engine.leases) >= state.config.max_leases:",
        "if False:",
        f"{HELD}[leases]",
    ),
    Mutant(
        "reservations without a cap",
        f"{CORE}/units/decide_units.py",
        "if len(state.engines[ask.caller.engine].units) >= state.config.max_units:",
        "if False:",
        f"{HELD}[units]",
    ),
    Mutant(
        "a settled lease that keeps everything",
        f"{CORE}/lookup/apply_leases.py",
        "    for other in drop:\n        unpin(state, other)\n",
        "    del drop\n",
        RESIDUE,
    ),
    Mutant(
        "leases that outlive their engine",
        f"{CORE}/incarnation/apply_life.py",
        "    for number in list(engine.leases):\n        end_lease(state, state.leases[number])\n",
        "",
        PAGED,
    ),
    Mutant(
        "pins ignored when memory is given up for disk",
        f"{CORE}/copies/decide_disk.py",
        "if c.memory >> s & 1 and not c.pins)",
        "if c.memory >> s & 1)",
        PAGED,
    ),
    Mutant(
        "generation not moved before bytes are handed in",
        f"{CORE}/units/decide_units.py",
        "return Decision((*first, event), reply, Ack.WRITTEN, ((Ack.WRITTEN, moved),))",
        "return Decision((*first, event), reply, Ack.WRITTEN)",
        PAGED,
    ),
    Mutant(
        "engines that are heard lose their leases",
        f"{CORE}/placement/admission.py",
        "if engine.silent and engine.tenant == tenant",
        "if engine.tenant == tenant",
        PAGED,
    ),
    Mutant(
        "what a reservation builds on makes room",
        f"{CORE}/placement/room.py",
        "if self._protect.get(other.id, 0) & mask:",
        "if False:",
        PAGED,
    ),
    Mutant(
        "moved though it was leased meanwhile",
        f"{CORE}/copies/decide_relocation.py",
        "    if cell.pins > own[cell.id]:\n",
        "    if False:\n",
        ALONE,
    ),
    Mutant(
        "restored from a disk that fails",
        f"{CORE}/copies/decide_degraded.py",
        "    if state.degraded:\n        raise",
        "    if False:\n        raise",
        ALONE,
    ),
)
