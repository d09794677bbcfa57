"""Fifty thousand mutated requests to a real daemon: one answer each, and the neighbour notices nothing."""

from __future__ import annotations

import asyncio
import struct
import sys

import pytest

from kvledger.testing import Daemon
from kvledger.wire import replies, requests
from kvledger.wire.framing import FRAME_MIN, REQUEST_MAX, encode_frame, peek_id
from support.fuzz_frames import SINGLES, is_harmless, mutated
from support.neighbour import Neighbour
from support.shell import Client
from support.soak.measures import own_bytes

COUNT = 50_000
NUMBERS = range(51_000)
"""Some of them are requests by which an operator changes the daemon for everybody, and are left out."""
PART = 61
"""The default set sends every 61st, which takes from the mutations of every message."""
PROBE = 2**40
STEP = 64
GROWTH_BYTES = 64 << 20


@pytest.fixture(scope="module")
def fuzzed():
    """Give a neighbour on a daemon that is for mutated requests only, since these register hundreds of layouts."""
    with Daemon(memory="64MiB", settings={"arena_bytes": "1MiB"}) as daemon, Neighbour(daemon) as neighbour:
        yield neighbour


async def greeted(daemon):
    """Return a client that has said hello."""
    client = await Client.connect(daemon.socket)
    await client.hello()
    return client


async def sent(client, body):
    """Send a body with a probe behind it; return its one answer, None if the daemon closed instead of going on."""
    probe = encode_frame(PROBE, requests.Status())
    await client.write(struct.pack("<I", len(body)) + body + probe)
    answers = {}
    while len(answers) < 2:
        number, reply = await asyncio.wait_for(client.reply(), 60)
        assert number not in answers, "answered twice"
        answers[number] = reply
        if number == 0:
            assert await client.is_closed()
            return None
    assert isinstance(answers.pop(PROBE), replies.StatusReport)
    ((number, reply),) = answers.items()
    assert number == peek_id(body)
    return reply


async def fuzz(daemon, numbers):
    """Send mutated requests by their numbers; return how many were sent, and how many were understood."""
    tried = understood = 0
    client = await greeted(daemon)
    for number in numbers:
        body = mutated(number)
        if not is_harmless(body) or peek_id(body) == PROBE:
            continue
        try:
            reply = await sent(client, body)
        except Exception as error:
            error.add_note(f"mutated request {number}: {body[:200].hex()}")
            raise
        tried += 1
        understood += getattr(reply, "code", "protocol") != "protocol"
        if reply is None or tried % STEP == 0:  # what was reserved by chance goes with its connection
            client.close()
            client = await greeted(daemon)
    client.close()
    return tried, understood


@pytest.mark.hostile("FU01")
@pytest.mark.parametrize("step", [PART, pytest.param(1, marks=pytest.mark.slow)])
def test_mutated_requests_are_each_answered_once(fuzzed, step, capsys):
    """Of fifty thousand mutated requests each gets one typed answer, and no memory, descriptor or lease is left."""
    with fuzzed.unharmed():
        before = own_bytes(fuzzed.daemon.pid)
        tried, understood = asyncio.run(fuzz(fuzzed.daemon, NUMBERS[::step]))
        with capsys.disabled():
            sys.stdout.write(f" {tried} mutated requests, {understood} of them understood ")
    assert tried >= COUNT // step
    assert understood > tried / 50
    assert own_bytes(fuzzed.daemon.pid) - before < GROWTH_BYTES
    assert len(SINGLES) < COUNT


@pytest.mark.hostile("FU01")
@pytest.mark.asyncio
async def test_mutated_lengths_and_ends_cost_only_their_connection(fuzzed):
    """A frame that is cut, or whose length says something else, is waited for or refused, and its connection ends."""
    for number in NUMBERS[::1000]:
        body = mutated(number)
        for length in {len(body) + 1, len(body) * 2 + FRAME_MIN, REQUEST_MAX, REQUEST_MAX + 1, len(body) // 2}:
            with await greeted(fuzzed.daemon) as client:
                await client.write(struct.pack("<I", length) + body)
    with await greeted(fuzzed.daemon) as client:
        assert isinstance(await client.ask(requests.Status()), replies.StatusReport)
