"""Tenants: who a caller is by the socket and the credentials it came with, and the secret its hashes are rooted in.

There is one tenant for now. The rule is a function of listening socket, uid and gid in its final place, so that a table
of rules replaces its body and nothing else.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import blake3

from kvledger.wire.commands import Right
from kvledgerd.server.peer import Peer

__all__ = ["DEFAULT_TENANT", "Access", "Rule", "one_tenant", "root_key", "tenant_digest"]

DEFAULT_TENANT: Final = "default"

# Separates this use of the secret from every other; part of the format, since stored keys depend on it.
_ROOT_CONTEXT: Final = "kvledger 2026-11-29 root of chain hashes"


class Access(NamedTuple):
    """Which tenant a caller belongs to, and the most it may do there."""

    tenant: str
    right: Right


Rule = Callable[[str, Peer], Access]
"""From the path of the listening socket and the peer's credentials to its access."""


def one_tenant(_socket: str, _peer: Peer) -> Access:
    """Give everybody who may open the socket all rights in the one tenant."""
    return Access(DEFAULT_TENANT, "operator")


def root_key(secret: bytes, tenant: str) -> bytes:
    """Return the 32-byte secret of a tenant, which hello hands out: BLAKE3 derive-key over secret and tenant."""
    return blake3.blake3(secret + tenant.encode(), derive_key_context=_ROOT_CONTEXT).digest()


def tenant_digest(tenant: str) -> bytes:
    """Return the 32 bytes that stand for a tenant in arena headers."""
    return blake3.blake3(tenant.encode()).digest()
