"""Shares of epochs: what one model's weights may take of the caps, so that a canary leaves the active ones their room.

An epoch at the end of its share makes room among its own, oldest first, and never at the expense of others. The share
is kept twice: of each kind by the narrowest cap on it, and in all by the narrowest cap on all kinds together, since
kinds that each keep within the latter could take all of it between them.
"""

from collections.abc import Iterator
from typing import NoReturn

from kvledger.errors import CapacityError
from kvledger.kinds import Kind
from kvledgerd.core.epoch.epochs import FULL_SHARE, Epoch
from kvledgerd.core.index import Cell
from kvledgerd.core.placement.caps import PlaceCaps
from kvledgerd.core.placement.pools import paged
from kvledgerd.core.placement.room import Room
from kvledgerd.core.placement.sureness import MEMORY_KINDS
from kvledgerd.core.state import State

__all__ = ["keep_share", "keep_whole_share", "refuse_share", "require_disk_share", "share_of", "whole_share"]


def share_of(epoch: Epoch, caps: PlaceCaps, kind: Kind) -> int:
    """Return the bytes that an epoch may take of one kind in a place."""
    return epoch.part_of(min(scope.bytes for scope in caps.of(kind)))


def whole_share(epoch: Epoch, caps: PlaceCaps) -> int:
    """Return the bytes that an epoch may take of all kinds together in a place."""
    return epoch.part_of(min(caps.tenant_bytes, caps.bytes))


def keep_whole_share(state: State, room: Room, epoch: Epoch, total: int) -> bool:
    """Let copies of an epoch go until `total` bytes more keep within its share in all; False if they never do.

    Raises:
        CapacityError: So much could never keep within it.
    """
    share = whole_share(epoch, state.config.memory())
    if total > share:
        refuse_share(epoch, "all kinds", total, share)
    kinds = sorted(MEMORY_KINDS, key=lambda kind: (-epoch.memory.get(kind, 0), kind))
    going = (room.let_go(kind, cell) for kind in kinds for cell in _oldest(state, room, epoch, kind))
    excess = sum(epoch.memory.values()) - sum(_freed(state, room, epoch, kind) for kind in kinds) + total - share
    before = sum(room.freed_bytes.values())
    while excess > sum(room.freed_bytes.values()) - before:
        if next(going, None) is None:
            return False
    return True


def keep_share(state: State, room: Room, epoch: Epoch, kind: Kind, total: int) -> bool:
    """Let copies of an epoch go until `total` bytes more of a kind keep within its share; False if they never do.

    Raises:
        CapacityError: So much could never keep within it.
    """
    share = share_of(epoch, state.config.memory(), kind)
    if total > share:
        refuse_share(epoch, kind.name, total, share)
    left = epoch.memory.get(kind, 0) - _freed(state, room, epoch, kind) + total
    cells = _oldest(state, room, epoch, kind)
    while left > share:
        cell = next(cells, None)
        if cell is None:
            return False
        left -= sum(extent[2] for extent in room.let_go(kind, cell))
    return True


def _oldest(state: State, room: Room, epoch: Epoch, kind: Kind) -> Iterator[Cell]:
    return (cell for cell in room.oldest(kind) if state.layouts[cell.layout].epoch is epoch)


def _freed(state: State, room: Room, epoch: Epoch, kind: Kind) -> int:
    """Return the bytes of a kind that go already of an epoch."""
    known = ((state.layouts[cell.layout], cell, slot) for cell, slot in room.victims)
    mine = ((k, c, s) for k, c, s in known if k.epoch is epoch and k.slot_kinds[s] is kind)
    return sum(paged(k.length_of(c, s)) for k, c, s in mine)


def refuse_share(epoch: Epoch, what: str, total: int, share: int) -> NoReturn:
    """Refuse what a share has no room for; raises CapacityError."""
    raise CapacityError(
        f"{total} bytes of {what} would pass the share of {epoch.name}: {epoch.share} %, which is {share} bytes, "
        f"and what it holds is leased, pinned or built upon",
        field="share",
        remedy="release leases, commit smaller units, or give it a larger share: kvledger epoch",
    )


def require_disk_share(epoch: Epoch, caps: PlaceCaps, writing: int, need: int) -> None:
    """Refuse records that would pass the share of an epoch, with what is being written for it; raises CapacityError."""
    share = whole_share(epoch, caps)
    if epoch.share != FULL_SHARE and epoch.disk + writing + need > share:
        raise CapacityError(
            f"{need} bytes would pass the share of {epoch.name}: {epoch.disk + writing} of {share} are taken",
            field="share",
            remedy="evict disk prefixes of it, or give it a larger share: kvledger epoch",
        )
