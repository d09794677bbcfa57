"""The manifest of a disk prefix: what makes its records mean something when there is no log to say it.

Each record names its own place of a prefix, its reservation and its commit. What it can not hold is the layout, of
which it has the digest alone, and whose it is; these stand in the manifest, with the chain of hashes that leads to the
boundary, and with the fingerprint of everything that the boundary consists of.
"""

import msgspec

from kvledger.layout import Layout
from kvledgerd.core.copies.parts import BoundaryPath
from kvledgerd.core.index import Copy, Node
from kvledgerd.core.known_layout import KnownLayout

__all__ = ["Manifest", "decode_manifest", "encode_manifest", "largest_manifest"]

_VERSION = 1
_HEAD_BYTES = 128  # version, numbers and the frames of all parts
_PRINT_BYTES = 40  # cell, slot and fingerprint with their frames


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """What a manifest says.

    Attributes:
        version: Of this form.
        tenant: Whose prefix it is.
        layout: The layout of all its records.
        position: Tokens to the boundary.
        chain: Chain hashes of the whole blocks before it, 32 bytes each.
        residue_hash: Hash of the tokens after the last of them, empty if there are none.
        prints: Cell, slot and fingerprint of everything that it consists of.
    """

    version: int
    tenant: str
    layout: Layout
    position: int
    chain: bytes
    residue_hash: bytes
    prints: list[tuple[int, int, bytes]]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Manifest)


def encode_manifest(known: KnownLayout, at: BoundaryPath, objects: list[Copy]) -> bytes:
    """Return the manifest of a boundary that consists of these objects."""
    chain = b"".join(node.hash for node in at.path)
    residue_hash = at.cell.residue_hash if at.cell is not None else b""
    prints = [(cell.id, slot, cell.fingerprint(slot)) for cell, slot in objects]
    return _ENCODER.encode(Manifest(_VERSION, known.tenant, known.layout, at.position, chain, residue_hash, prints))


def decode_manifest(payload: bytes | memoryview) -> Manifest | None:
    """Return what a manifest says, None if it is of another form."""
    try:
        found = _DECODER.decode(payload)
    except (msgspec.DecodeError, ValueError):
        return None
    return found if found.version == _VERSION else None


def largest_manifest(known: KnownLayout, node: Node) -> int:
    """Return the bytes that the manifest of a boundary behind `node` has at most."""
    prints = node.depth * len(known.geometry.block_slots) + len(known.geometry.boundary_slots)
    named = len(_ENCODER.encode(known.layout)) + len(known.tenant.encode())
    return _HEAD_BYTES + named + 32 * node.depth + _PRINT_BYTES * prints
