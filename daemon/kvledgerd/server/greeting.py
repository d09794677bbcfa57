"""The hello of a connection: which protocol version is spoken, and what the daemon says about itself.

A client of a later version may say more in its hello than this version knows, and then its message can not be decoded
as a whole. Its versions can be read all the same, so that people learn that the versions differ and not that "the
frame is malformed".
"""

import msgspec

from kvledger.errors import ProtocolError
from kvledger.wire.framing import REQUEST_MAX
from kvledger.wire.replies import Welcome
from kvledger.wire.requests import PROTOCOL_VERSION, Hello
from kvledgerd.server.services import Services
from kvledgerd.tenants import root_key

__all__ = ["VersionRefusedError", "check_version", "welcome"]


class VersionRefusedError(ProtocolError):
    """The client speaks no protocol version that this daemon speaks."""

    @classmethod
    def require(cls, versions: tuple[int, int]) -> None:
        """Raise unless the range of versions holds ours."""
        low, high = versions
        if not low <= PROTOCOL_VERSION <= high:
            raise cls(
                f"the client speaks protocol versions {low} to {high}, this daemon speaks {PROTOCOL_VERSION}",
                field="versions",
                remedy="install the same kvledger on both sides",
            )


class _AnyHello(msgspec.Struct, array_like=True, tag=str(Hello.__struct_config__.tag)):
    """The part of a hello that no version changes."""

    versions: tuple[int, int]


_decoder = msgspec.msgpack.Decoder(tuple[int, _AnyHello])


def check_version(body: bytes) -> VersionRefusedError | None:
    """Return why the hello in ``body`` could never be understood, if that is a matter of versions."""
    try:
        _, hello = _decoder.decode(body)
        VersionRefusedError.require(hello.versions)
    except VersionRefusedError as error:
        return error
    except (ValueError, RecursionError, OverflowError, MemoryError):
        return None
    return None


def welcome(services: Services, tenant: str) -> Welcome:
    """Return the answer to a hello."""
    return Welcome(
        version=PROTOCOL_VERSION,
        incarnation=services.identity.incarnation,
        log_id=services.identity.log_id,
        root_key=root_key(services.identity.secret, tenant),
        tenant=tenant,
        frame_max=REQUEST_MAX,
        ring_max=services.rings.cap_bytes,
    )
