"""Mutated requests, by number: the same number is the same frame everywhere, so a finding can be sent again.

First come all truncations and all single flipped bits of every golden request, in order; behind them, without end,
frames that were changed in several places at once, in ways that msgpack and the fields of the messages invite.
"""

from __future__ import annotations

import itertools
import json
import random
import struct
from pathlib import Path

from kvledger.errors import ProtocolError
from kvledger.wire.framing import decode_request
from kvledger.wire.requests import SetEpoch, SetQuota, SetScrub, Warm

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/frames.json").read_text(encoding="utf-8"))
BODIES = [bytes.fromhex(entry["frame"])[4:] for entry in GOLDEN if entry["direction"] == "request"]
BY_OPERATORS = (SetEpoch, SetQuota, SetScrub, Warm)
"""What changes the daemon for everybody, and is meant to: a mutation that is still such a request is not sent."""

# First bytes of msgpack values of every type, claims of great lengths, and numbers at the edge of each field.
VALUES = (
    *(bytes([first]) for first in range(0xC0, 0x100)),
    *(bytes([first]) + b"\xff" * 4 for first in (0xC6, 0xC9, 0xDB, 0xDD, 0xDF)),
    *(b"\xcf" + struct.pack(">Q", number) for number in (2**31, 2**40, 2**63 - 1, 2**63, 2**64 - 1)),
    b"\xd3\x80" + bytes(7),
    b"\xcb\x7f\xf8" + bytes(6),
    b"\x90",
    b"\x91" * 600,
    b"\x80",
    b"\xa0",
    b"\xc4\x00",
    b"\xa3\xed\xa0\x80",
    bytes(64),
)


def singles():
    """Yield every request cut at every length, and with every single bit flipped."""
    for body in BODIES:
        yield from (body[:at] for at in range(len(body)))
        for at, bit in itertools.product(range(len(body)), range(8)):
            yield body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :]


SINGLES = tuple(singles())


def mutated(number):
    """Return the body of one mutated request, without its length."""
    if number < len(SINGLES):
        return SINGLES[number]
    chance = random.Random(number)
    body = bytearray(chance.choice(BODIES))
    for _ in range(chance.randint(1, 6)):
        chance.choice((_replace, _insert, _remove, _repeat, _splice))(chance, body)
    return bytes(body)


def _place(chance, body):
    start = chance.randrange(len(body) + 1)
    return start, min(len(body), start + chance.choice((0, 1, 1, 2, 4, 9, 33)))


def _replace(chance, body):
    start, end = _place(chance, body)
    body[start:end] = chance.choice(VALUES)


def _insert(chance, body):
    start, _ = _place(chance, body)
    body[start:start] = chance.randbytes(chance.randint(1, 8))


def _remove(chance, body):
    start, end = _place(chance, body)
    del body[start:end]


def _repeat(chance, body):
    start, end = _place(chance, body)
    body[start:start] = body[start:end] * chance.randint(1, 50)


def _splice(chance, body):
    other = chance.choice(BODIES)
    start, _ = _place(chance, body)
    body[start:] = other[chance.randrange(len(other)) :]


def is_harmless(body):
    """Tell whether a body may be sent: it is no request that changes the daemon for everybody."""
    try:
        return not isinstance(decode_request(body)[1], BY_OPERATORS)
    except ProtocolError:
        return True
