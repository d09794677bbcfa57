"""A layout that the daemon knows."""

from typing import NamedTuple

from kvledger.counts import counted
from kvledger.errors import CallerError
from kvledger.geometry import Geometry
from kvledger.layout import Layout

__all__ = ["RegisteredLayout", "group_index", "require_registered"]


class RegisteredLayout(NamedTuple):
    """What `Cache.register` returns; valid for the life of the cache, across reconnects.

    Attributes:
        layout: The layout itself.
        geometry: The positions and sizes that follow from it.
        digest: Its digest, 32 bytes.
    """

    layout: Layout
    geometry: Geometry
    digest: bytes

    def __repr__(self) -> str:
        groups = counted(len(self.layout.groups), "group")
        return f"<RegisteredLayout {self.layout.model} {self.digest.hex()[:12]}, {groups}>"


def require_registered(layout: RegisteredLayout) -> None:
    """Return if a caller passed what `register` returned.

    Raises:
        CallerError: It is something else, such as the layout itself.
    """
    if not isinstance(layout, RegisteredLayout):
        wrong = f"a {type(layout).__name__} is not registered"
        raise CallerError(wrong, field="layout", remedy="register it first and pass what register() returned")


def group_index(layout: Layout, name: str, field: str = "group") -> int:
    """Return the index of the group that a caller names.

    Raises:
        CallerError: The layout has no such group.
    """
    names = [spec.name for spec in layout.groups]
    if name not in names:
        remedy = f"use one of {', '.join(names)}"
        raise CallerError(f"{name!r} is no group of this layout", field=field, remedy=remedy)
    return names.index(name)
