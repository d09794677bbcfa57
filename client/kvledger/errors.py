"""Errors by whose fault they are, each with the field that is wrong and what to do next.

Three families, so that a caller can decide without reading text: `CallerError` (a rule was broken; asking again changes
nothing), `ServiceError` (the daemon, the disk or a limit stands in the way; asking later may help) and
`TimePassedError` (what was held is no longer held; look up again). The same triple (code, field, remedy) travels over
the wire.
"""

from typing import ClassVar

__all__ = [
    "CallerError",
    "CapacityError",
    "CommitRefusedError",
    "DamagedError",
    "DeadlineError",
    "DegradedError",
    "DisconnectedError",
    "EpochError",
    "GenerationError",
    "KVLedgerError",
    "LayoutError",
    "LeaseLost",
    "LimitError",
    "NotDurableError",
    "NotFoundError",
    "NotResidentError",
    "ProtocolError",
    "RecaptureError",
    "RoutingError",
    "ServiceError",
    "TimePassedError",
    "TopologyLostError",
    "error_from_wire",
]


class KVLedgerError(Exception):
    """Base of all errors of kvledger; never raised itself.

    Attributes:
        field: Name of the argument, frame field or resource that is wrong; empty if there is none.
        remedy: One sentence on what to do next.
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, field: str = "", remedy: str = "") -> None:
        self.message = message
        self.field = field
        self.remedy = remedy
        super().__init__(self._text())

    def _text(self) -> str:
        where = f"{self.field}: " if self.field else ""
        then = f" ({self.remedy})" if self.remedy else ""
        return f"{where}{self.message}{then}"


class CallerError(KVLedgerError):
    """The caller broke a rule; the same request will always be refused."""

    code = "caller"


class ProtocolError(CallerError):
    """A frame is malformed, oversized, out of order or of another version."""

    code = "protocol"


class LayoutError(CallerError):
    """A layout contradicts itself, its preset or what is registered under its digest."""

    code = "layout"


class RoutingError(CallerError):
    """A command names one kind and means an object of another."""

    code = "routing"


class CommitRefusedError(CallerError):
    """A unit is incomplete, or no look-up could ever use it."""

    code = "commit_refused"


class EpochError(CommitRefusedError):
    """The weights or the kernel ABI of a layout are draining or retired, or its weights are not named."""

    code = "epoch"


class NotFoundError(CallerError):
    """No such lease, unit, layout or object for this caller. Denied and foreign look exactly the same."""

    code = "not_found"


class GenerationError(CallerError):
    """A receipt of an older reservation: what it names has since been given to somebody else."""

    code = "generation"


class RecaptureError(CallerError):
    """A topology is to be changed outside of a recapture window, or its window is opened or closed twice."""

    code = "recapture"


class ServiceError(KVLedgerError):
    """The daemon, its disk or one of its limits stands in the way."""

    code = "service"


class CapacityError(ServiceError):
    """A cap would be passed and nothing may be evicted."""

    code = "capacity"


class DegradedError(ServiceError):
    """Too many restores failed, so that none begins for now; what is in memory is handed out as ever."""

    code = "degraded"


class NotDurableError(ServiceError):
    """A unit that asked to be persistent was published in memory and is not durable on disk; the error says why."""

    code = "not_durable"


class LimitError(ServiceError):
    """A limit of this connection or uid is reached."""

    code = "limit"


class NotResidentError(ServiceError):
    """What a graph is to read in place is not all in memory, verified; restore it and register again.

    Attributes:
        objects: The first of what is not, as text: group, shard, place and state.
        more: How many more there are.
    """

    code = "not_resident"

    def __init__(
        self, message: str, *, field: str = "", remedy: str = "", objects: tuple[str, ...] = (), more: int = 0
    ) -> None:
        self.objects = objects
        self.more = more
        super().__init__(message, field=field, remedy=remedy)


class DamagedError(ServiceError):
    """The daemon's log is damaged: it holds its memory and serves nothing until somebody has decided about the log."""

    code = "damaged"


class DeadlineError(ServiceError):
    """What was waited for did not come in time; it may still happen."""

    code = "deadline"


class DisconnectedError(ServiceError):
    """The daemon can not be reached, or went away before it answered."""

    code = "disconnected"


class TimePassedError(KVLedgerError):
    """What was held is no longer held."""

    code = "time_passed"


class LeaseLost(TimePassedError):  # noqa: N818 - the name stands in the design and in user code
    """The bytes behind a lease can no longer be trusted; look up again and compute what is missing."""

    code = "lease_lost"


class TopologyLostError(TimePassedError):
    """A topology is not held any more, or bytes that it pins are not those that were registered; capture anew."""

    code = "topology_lost"


def _families(root: type[KVLedgerError]) -> dict[str, type[KVLedgerError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _families(child)
    return found


_BY_CODE = _families(KVLedgerError)


def error_from_wire(code: str, message: str, field: str, remedy: str) -> KVLedgerError:
    """Return the error that a reply describes; an unknown code becomes a plain `ServiceError`."""
    return _BY_CODE.get(code, ServiceError)(message, field=field, remedy=remedy)
