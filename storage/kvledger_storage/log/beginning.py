"""Where a log begins on disk: the `begin` file, once its oldest segments were archived or retired.

A log that was never touched begins with its identity: its first seq and root chain. When segments are moved to the
archive, recovery no longer reads them, so something outside them has to say at which seq and chain the rest begins;
when archived ones are retired, the same must be said of the archive. Both places stand in one small file that is
replaced whole, before the first segment moves. It is an anchor and no authority: the events that caused it say the same
in the log itself, and the daemon compares.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from kvledger_storage.log.errors import FrameError
from kvledger_storage.log.frame import CHAIN_BYTES
from kvledger_storage.log.io import LogIO, publish_file, read_file

if TYPE_CHECKING:
    from pathlib import Path

    from kvledger_storage.log.identity import Identity

BEGIN_NAME: Final = "begin"
_MAGIC: Final = b"KVLBEGN1"
# magic, then of what is kept and of what is live: first seq and the chain before it; CRC32C of the log id and all that
_BODY: Final = struct.Struct(f"<8sQ{CHAIN_BYTES}sQ{CHAIN_BYTES}s")
_CRC: Final = struct.Struct("<I")


class Anchor(NamedTuple):
    """A place between two segments: the first seq behind it, and the chain that the segment there has to name."""

    seq: int
    chain: bytes


class Beginning(NamedTuple):
    """Where a log begins.

    Attributes:
        kept: The oldest event that still exists, in the archive or in the log.
        live: The oldest event that recovery reads.
    """

    kept: Anchor
    live: Anchor


def original(identity: Identity) -> Beginning:
    """Return the beginning of a log of which nothing was archived."""
    anchor = Anchor(identity.first_seq, identity.root_chain)
    return Beginning(anchor, anchor)


def read_beginning(io: LogIO, directory: Path, identity: Identity) -> Beginning:
    """Return where the log begins.

    Raises:
        FrameError: The file is damaged, or of another log.
    """
    try:
        data = read_file(io, directory / BEGIN_NAME)
    except FileNotFoundError:
        return original(identity)
    if len(data) != _BODY.size + _CRC.size or data[: len(_MAGIC)] != _MAGIC:
        raise FrameError("begin magic and length", 0, _MAGIC.hex(), data[: len(_MAGIC)].hex() or "an empty file")
    expected, (found,) = _sum(identity, data[: _BODY.size]), _CRC.unpack(data[_BODY.size :])
    if expected != found:
        raise FrameError("begin CRC32C", 0, f"{expected:08x} for these bytes and this log", f"{found:08x}")
    _, kept_seq, kept_chain, live_seq, live_chain = _BODY.unpack(data[: _BODY.size])
    return Beginning(Anchor(kept_seq, kept_chain), Anchor(live_seq, live_chain))


def write_beginning(io: LogIO, directory: Path, identity: Identity, beginning: Beginning) -> None:
    """Publish where the log begins from now on, durably and at once."""
    unsigned = _BODY.pack(_MAGIC, *beginning.kept, *beginning.live)
    publish_file(io, directory / BEGIN_NAME, unsigned + _CRC.pack(_sum(identity, unsigned)))


def _sum(identity: Identity, unsigned: bytes) -> int:
    return crc32c(unsigned, crc32c(identity.log_id))
