"""How a connection begins: the version of the protocol, and the first message."""

from kvledger.wire.fields import EngineId, Id, Message, Name, Small

__all__ = ["PROTOCOL_VERSION", "Hello"]

PROTOCOL_VERSION = 1


class Hello(Message, frozen=True, tag="hello"):
    """First message of a connection; the reply carries one end of the descriptor socket.

    Attributes:
        versions: Lowest and highest protocol version that the client speaks.
        engine: Random 128-bit id that all connections of one engine show.
        leader: The engine ends with this connection's process.
        name: What people call the engine.
        incarnation: Incarnation that the client knew, 0 at first.
        tenant: Tenant to act for, which operators may name; empty for the caller's own.
    """

    versions: tuple[Small, Small]
    engine: EngineId
    leader: bool = False
    name: Name = ""
    incarnation: Id = 0
    tenant: Name = ""
