"""Caps: how much of a place objects may take, in bytes and in entries, by kind, by tenant and in all.

One formula for sizing and for admission: a start that checks whether a machine is large enough, a decision that admits,
and the walker that checks afterwards all ask `first_passed`. It knows nothing of the state; whoever asks says what is
used and what is wanted, and takes it inside the same decision. A place is memory, disk, or one device pool.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from kvledger.errors import CapacityError
from kvledger.kinds import Kind

__all__ = ["NO_CAP", "Amount", "Passed", "PlaceCaps", "Scopes", "first_passed", "scopes_of", "total"]

K = TypeVar("K", bound=int)

NO_CAP = 1 << 62
"""Stands where nothing is capped."""


class Amount(NamedTuple):
    """Bytes and entries; an entry is one object, reserved or stored."""

    bytes: int = 0
    entries: int = 0


class Scopes(NamedTuple):
    """An amount in each of the scopes that are capped: one kind of one tenant, the tenant, all tenants."""

    kind: Amount = Amount()
    tenant: Amount = Amount()
    whole: Amount = Amount()


def total(amounts: Iterable[Amount]) -> Amount:
    """Return amounts together."""
    found = list(amounts)
    return Amount(sum(one.bytes for one in found), sum(one.entries for one in found))


def scopes_of(use: Mapping[tuple[str, K], Amount], tenant: str, kind: K) -> Scopes:
    """Return what is used in each scope, from what each kind of each tenant uses."""
    own = (amount for (owner, _), amount in use.items() if owner == tenant)
    return Scopes(use.get((tenant, kind), Amount()), total(own), total(use.values()))


class PlaceCaps(msgspec.Struct, frozen=True, kw_only=True):
    """The caps of one place.

    Attributes:
        place: What it is, for people: `memory`, `disk`, or the name of a device pool.
        prefix: What the names of its settings begin with, but for those of the whole place.
        bytes: Cap on the bytes of all tenants.
        entries: Cap on their entries.
        tenant_bytes: Cap on the bytes of each tenant.
        tenant_entries: Cap on its entries.
        kind_bytes: Cap on the bytes of a kind within a tenant; kinds that are not named have none.
        kind_entries: Cap on its entries.
    """

    place: str
    prefix: str
    bytes: int = NO_CAP
    entries: int = NO_CAP
    tenant_bytes: int = NO_CAP
    tenant_entries: int = NO_CAP
    kind_bytes: Mapping[Kind, int] = {}
    kind_entries: Mapping[Kind, int] = {}

    def of(self, kind: Kind) -> Scopes:
        """Return what one kind may use in each scope."""
        return Scopes(
            Amount(self.kind_bytes.get(kind, NO_CAP), self.kind_entries.get(kind, NO_CAP)),
            Amount(self.tenant_bytes, self.tenant_entries),
            Amount(self.bytes, self.entries),
        )

    def name(self, scope: int, unit: int) -> str:
        """Return a setting by the numbers of its scope, the kind's first, and of bytes or entries."""
        whose = (f"{self.prefix}kind", f"{self.prefix}tenant", self.place)[scope]
        return f"{whose}_{('bytes', 'entries')[unit]}"


class Passed(NamedTuple):
    """A cap that would be passed: its setting, the cap, what is used of it and what was wanted besides."""

    name: str
    cap: int
    used: int
    wanted: int

    @property
    def excess(self) -> int:
        """By how much it would be passed."""
        return self.used + self.wanted - self.cap

    def refusal(self, what: str, remedy: str, held: str = "") -> CapacityError:
        """Return the refusal that names the cap, its use and the remedy.

        Args:
            what: What was to be admitted, for people.
            remedy: What to do besides raising the cap.
            held: What keeps the use from shrinking, for people; may be empty.
        """
        unit = "bytes" if self.name.endswith("bytes") else "entries"
        text = f"{what}: {self.wanted} {unit} more would pass {self.name}, {self.used} of {self.cap} are in use"
        return CapacityError(text + f"; {held}" * bool(held), field=self.name, remedy=f"{remedy}, or raise {self.name}")


def first_passed(caps: PlaceCaps, kind: Kind, use: Scopes, more: Scopes) -> Passed | None:
    """Return the first cap that `more` beside `use` would pass, from the narrowest scope on; None if there is none."""
    for scope, (caps_of, used_of, wanted_of) in enumerate(zip(caps.of(kind), use, more, strict=True)):
        for unit, (cap, used, wanted) in enumerate(zip(caps_of, used_of, wanted_of, strict=True)):
            if wanted > 0 and used + wanted > cap:
                return Passed(caps.name(scope, unit), cap, used, wanted)
    return None
