"""Field types of the wire with their bounds, and the base of all messages.

A frame is a 4-byte little-endian length and a msgpack array ``[request id, message]``; a message is an array whose
first element is its tag. Integers are at most 2**63 - 1.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = [
    "MAX_ID",
    "Boundary",
    "EngineId",
    "GroupName",
    "Hash",
    "Hashes",
    "Id",
    "Message",
    "Name",
    "Small",
    "Ticket",
    "Tokens",
]

MAX_ID = 2**63 - 1
Id = Annotated[int, Meta(ge=0, le=MAX_ID)]
Tokens = Annotated[int, Meta(ge=0, le=2**40)]
Small = Annotated[int, Meta(ge=0, le=2**31)]
Ticket = Annotated[int, Meta(ge=-1, le=1023)]
Hashes = Annotated[bytes, Meta(max_length=1 << 20)]
Hash = Annotated[bytes, Meta(max_length=32)]
EngineId = Annotated[bytes, Meta(min_length=16, max_length=16)]
Name = Annotated[str, Meta(max_length=128)]
GroupName = Annotated[str, Meta(max_length=64)]


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all messages: an array, tagged by the name of its class."""


class Boundary(Message, frozen=True):
    """A position of a prompt: its whole blocks, and the residue after them.

    Attributes:
        hashes: Chain hashes of the whole blocks up to the position, 32 bytes each.
        residue: Tokens after the last whole block, less than a block.
        residue_hash: Their hash, 32 bytes; empty if there are none.
    """

    hashes: Hashes
    residue: Small = 0
    residue_hash: Hash = b""
