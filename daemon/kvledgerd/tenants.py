"""Tenants: their users, and what stands for one where its name must not, the root of its hashes and its digest.

Who belongs to which tenant is said by the rules of `kvledgerd.access`.
"""

from typing import Final, NamedTuple

import blake3

__all__ = ["User", "root_key", "tenant_digest"]

# Separates this use of the secret from every other; part of the format, since stored keys depend on it.
_ROOT_CONTEXT: Final = "kvledger 2026-11-29 root of chain hashes"


class User(NamedTuple):
    """A uid within a tenant."""

    tenant: str
    uid: int


def root_key(secret: bytes, tenant: str) -> bytes:
    """Return the 32-byte secret of a tenant, which hello hands out: BLAKE3 derive-key over secret and tenant."""
    return blake3.blake3(secret + tenant.encode(), derive_key_context=_ROOT_CONTEXT).digest()


def tenant_digest(tenant: str) -> bytes:
    """Return the 32 bytes that stand for a tenant in arena headers."""
    return blake3.blake3(tenant.encode()).digest()
