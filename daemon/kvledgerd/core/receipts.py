"""Finding what a caller names: its layout, lease or unit. Unknown, foreign, past and denied look exactly the same."""

import difflib
from typing import NoReturn

from kvledger.errors import CallerError, GenerationError, LeaseLost, NotFoundError
from kvledger.wire.requests import Boundary, GivePagesUp, ReportFilled, Request
from kvledgerd.core.commands import Caller
from kvledgerd.core.device_pools.device import Asked, DevicePool
from kvledgerd.core.holdings import Lease, Unit
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.state import State

__all__ = [
    "check_boundary",
    "check_digest",
    "find_asked",
    "find_layout",
    "find_lease",
    "find_pool",
    "find_unit",
    "refuse",
]

_NOBODY = Caller(connection=0, engine=-1, tenant="")
"""To whom nothing belongs."""
_NAMED = 3
"""Digests that an error names, those most like the one that was asked for."""


def find_layout(state: State, caller: Caller, number: int) -> KnownLayout:
    """Return a layout of the caller's tenant, and an unpinned one only of the caller itself; raises NotFoundError."""
    known = state.layouts.get(number)
    if known is None or known.tenant != caller.tenant or known.epoch.engine not in {0, caller.engine}:
        raise NotFoundError(
            f"no layout {number}",
            field="layout",
            remedy="register the layout and use the number given; who lacks the right is told the same",
        )
    return known


def check_digest(state: State, caller: Caller, begins: bytes) -> None:
    """Refuse the beginning of a digest that no layout of the caller's tenant has; raises NotFoundError."""
    known = [one.layout.digest for one in state.layouts.values() if one.tenant == caller.tenant]
    if not begins or any(digest.startswith(begins) for digest in known):
        return
    near = difflib.get_close_matches(begins.hex(), [digest.hex()[:16] for digest in known], _NAMED, cutoff=0)
    remedy = f"name one of this tenant's, such as {', '.join(near)}" if near else "this tenant has no layout yet"
    raise NotFoundError(f"no digest of a layout begins {begins.hex()}", field="layout", remedy=remedy)


def find_lease(state: State, caller: Caller, number: int) -> Lease:
    """Return a lease of the caller's engine; raises LeaseLost."""
    lease = state.leases.get(number)
    if lease is None or lease.engine != caller.engine:
        remedy = "look up again; a lease ends with its release, its engine, its revocation or the daemon's restart"
        raise LeaseLost(f"lease {number} is not held", field="lease", remedy=remedy)
    return lease


def find_unit(state: State, caller: Caller, number: int) -> Unit:
    """Return an open reservation of the caller's engine; raises GenerationError."""
    unit = state.units.get(number)
    if unit is None or unit.engine != caller.engine or unit.aborted:
        remedy = (
            "reserve again, if you may; a reservation ends with commit, abort, its engine, its revocation or a restart"
        )
        owner, how = state.endings.get(number, (0, ""))
        why = how if owner == caller.engine else "its slots may be somebody else's"
        raise GenerationError(f"reservation {number} is not held: {why}", field="unit", remedy=remedy)
    return unit


def find_pool(state: State, caller: Caller, number: int) -> DevicePool:
    """Return a device pool of the caller's engine; raises NotFoundError."""
    pool = state.device_pools.get(number)
    if pool is None or pool.engine != caller.engine:
        remedy = "register the pool, if you may; it ends with its engine and with the daemon's incarnation"
        raise NotFoundError(f"no device pool {number}", field="pool", remedy=remedy)
    return pool


def find_asked(state: State, caller: Caller, number: int) -> Asked:
    """Return pages that the caller's engine is filling; raises GenerationError."""
    asked = state.asked.get(number)
    if asked is None or asked.engine != caller.engine:
        remedy = (
            "ask again, if you may; what is asked for ends when it is filled or given up, with its pool and its engine"
        )
        raise GenerationError(
            f"unit {number} is not being filled: its pages may be another object's", field="unit", remedy=remedy
        )
    return asked


def refuse(state: State, body: Request) -> NoReturn:
    """Answer a request for which the caller has no right, by looking for what it names among what nobody has.

    So the answer, and the way to it, are those for what is not there and for what another tenant has.

    Raises:
        KVLedgerError: Always.
    """
    for name, find in (("layout", find_layout), ("pool", find_pool), ("unit", find_unit)):
        number = getattr(body, name, None)
        if isinstance(body, ReportFilled | GivePagesUp):
            find_asked(state, _NOBODY, body.unit)
        elif isinstance(number, int):
            find(state, _NOBODY, number)
    raise NotFoundError(
        "there is no such thing for this caller", field="right", remedy="ask the operator for the right"
    )


def check_boundary(known: KnownLayout, at: Boundary, field: str) -> int:
    """Check that a boundary is well formed and return its position, tokens; raises CallerError."""
    size = known.layout.block_tokens
    wrong = where = remedy = ""
    if len(at.hashes) % 32:
        wrong, where, remedy = f"{len(at.hashes)} bytes are no 32-byte hashes", "hashes", "send whole hashes"
    elif at.residue >= size:
        wrong, where, remedy = f"{at.residue} tokens hold a block of {size}", "residue", "hash whole blocks as blocks"
    elif len(at.residue_hash) != (32 if at.residue else 0):
        wrong, where = f"{len(at.residue_hash)} bytes for a residue of {at.residue} tokens", "residue_hash"
        remedy = "send 32 bytes with a residue, none without"
    if wrong:
        raise CallerError(wrong, field=f"{field}.{where}", remedy=remedy)
    return len(at.hashes) // 32 * size + at.residue
