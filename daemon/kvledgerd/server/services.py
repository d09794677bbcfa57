"""The parts of the daemon that a connection needs, in one bundle."""

from dataclasses import dataclass, field

from kvledgerd.loop.writer import WriterLoop
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.memory.rings import RingTable
from kvledgerd.server.admission import Admission
from kvledgerd.server.engines import EngineRegistry
from kvledgerd.server.limits import UserLimits
from kvledgerd.server.outbox import Outbox
from kvledgerd.server.refusal_log import RefusalLog

__all__ = ["ConnectionLimits", "Identity", "Services"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Which cache this is: run of the daemon, id of its log (16 bytes), secret of its data directory (32 bytes)."""

    incarnation: int
    log_id: bytes
    secret: bytes


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection may do.

    Attributes:
        hello_seconds: How long it may say nothing at first.
        slow_seconds: How long it may leave its replies unread.
        connection_requests: Requests in flight; more wait unread.
    """

    hello_seconds: float = 10.0
    slow_seconds: float = 30.0
    connection_requests: int = 256


@dataclass(frozen=True, slots=True)
class Services:
    """What a connection uses; one for all of them."""

    identity: Identity
    writer: WriterLoop
    engines: EngineRegistry
    arenas: ArenaTable
    rings: RingTable
    users: UserLimits
    outbox: Outbox
    limits: ConnectionLimits
    admission: Admission
    refusals: RefusalLog = field(default_factory=RefusalLog)
