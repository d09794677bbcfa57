"""Epochs: a model with one weights digest, and how far what is stored under it may be used.

Every layout belongs to one epoch, for as long as it is known. An unpinned layout, one that names no weights, has an
epoch that belongs to one engine and retires with it: nothing proves that another engine has the same weights.

An epoch counts what it holds, so that its share can be checked in the decision that would pass it.
"""

from kvledger.epochs import EpochState
from kvledger.errors import EpochError
from kvledger.kinds import Kind
from kvledger.layout import Layout

__all__ = ["FULL_SHARE", "NEXT_STATES", "Epoch"]

FULL_SHARE = 100
"""Per cent of what the tenant may use; an epoch with this share is bound by the other caps only."""

_E = EpochState

NEXT_STATES: dict[EpochState, tuple[EpochState, ...]] = {
    _E.CANARY: (_E.ACTIVE, _E.DRAINING, _E.RETIRED),
    _E.ACTIVE: (_E.DRAINING, _E.RETIRED),
    _E.DRAINING: (_E.CANARY, _E.ACTIVE, _E.RETIRED),
    _E.RETIRED: (_E.CANARY, _E.ACTIVE),
}
"""What an epoch may become. A retired one begins anew, empty: weights are rolled back now and then."""


class Epoch:
    """A model with one weights digest.

    Attributes:
        number: Its number in this log.
        tenant: Whose it is.
        model: Name of the model.
        weights: Digest of the weights; empty for one that belongs to an engine.
        engine: The engine that it belongs to, 0 for none.
        state: Where it is in its life.
        share: Per cent of the caps on memory and disk that its objects may take.
        kernels: Kernel ABIs that were retired, as (name, number).
        memory: Bytes in whole pages that it holds in memory, by kind: objects, reservations, restores under way, and
            what a pin keeps after its end.
        disk: Bytes of its records on disk.
    """

    __slots__ = ("disk", "engine", "kernels", "memory", "model", "number", "share", "state", "tenant", "weights")

    def __init__(self, number: int, tenant: str, model: str, weights: str, engine: int = 0) -> None:
        self.number = number
        self.tenant = tenant
        self.model = model
        self.weights = weights
        self.engine = engine
        self.state = EpochState.ACTIVE
        self.share = FULL_SHARE
        self.kernels: dict[tuple[str, int], None] = {}
        self.memory: dict[Kind, int] = {}
        self.disk = 0

    @property
    def name(self) -> str:
        """What people call it."""
        if self.engine:
            return f"{self.model} with unnamed weights of engine {self.engine}"
        return f"{self.model} with weights {self.weights}"

    def why_unusable(self, layout: Layout) -> str:
        """Return why nothing that is stored under a layout can be used, empty if it can."""
        if self.state is EpochState.RETIRED:
            return f"{self.name} was retired"
        for group, abi in layout.abi.items() if self.kernels else ():
            if (abi.name, abi.number) in self.kernels:
                return f"kernel ABI {abi.name} {abi.number} of {group} was retired for {self.name}"
        return ""

    def takes_commits(self, layout: Layout) -> bool:
        """Tell whether something may be stored under a layout."""
        return self.state is not EpochState.DRAINING and not self.why_unusable(layout)

    def require_commits(self, layout: Layout) -> None:
        """Refuse to store anything that no look-up could use, or that is on its way out; raises EpochError."""
        self.require_usable(layout)
        if self.state is EpochState.DRAINING:
            raise EpochError(
                f"{self.name} is draining: what is stored can be used, nothing new is stored",
                field="layout",
                remedy="serve the weights that are active, or make these active again: kvledger epoch activate",
            )

    def require_usable(self, layout: Layout) -> None:
        """Refuse what acts on the objects of a layout that has none any more; raises EpochError."""
        why = self.why_unusable(layout)
        if why:
            raise EpochError(
                why,
                field="layout",
                remedy="serve other weights or a newer kernel ABI, or see who retired it: kvledger audit epochs",
            )

    def part_of(self, cap: int) -> int:
        """Return what the epoch may take of a cap."""
        return cap * self.share // FULL_SHARE

    def facts(self) -> tuple[int | str, ...]:
        """Return everything that decisions depend on and nothing derives, for the digest."""
        kernels = [part for kernel in self.kernels for part in kernel]
        return (self.number, self.tenant, self.model, self.weights, self.engine, self.state, self.share, *kernels)
