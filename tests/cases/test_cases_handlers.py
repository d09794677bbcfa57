"""Field cases about the server's own code: handlers that fail, workers that hang."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import tracemalloc
from pathlib import Path

import pytest

from kvledger.kinds import Kind
from kvledger.wire import replies, requests
from kvledger.wire.commands import COMMANDS
from kvledger.wire.framing import decode_request
from kvledgerd.core.commands import Ask, EngineSilent
from kvledgerd.workers.workers import Workers
from support.shell import SmallCore, serving, until

SERVED = (requests.Hello, requests.Ring, requests.Arenas)
"""Requests that the server answers itself."""


def golden_requests():
    """One request of each kind that the core decides: every kind has its golden frame."""
    rows = json.loads((Path(__file__).parents[1] / "golden/frames.json").read_text())
    frames = [bytes.fromhex(row["frame"]) for row in rows if row["direction"] == "request"]
    return [body for body in (decode_request(frame[4:])[1] for frame in frames) if not isinstance(body, SERVED)]


BODIES = golden_requests()
ERRORS = [ZeroDivisionError, KeyError, RecursionError, MemoryError, AssertionError]


class BrokenCore(SmallCore):
    """A core whose every handler fails, in one way after the other."""

    def decide(self, command):
        """Fail on whatever a client asks."""
        if isinstance(command, Ask):
            self.failed = getattr(self, "failed", 0) + 1
            raise ERRORS[self.failed % len(ERRORS)](command)
        return super().decide(command)


def test_l28_every_request_takes_part():
    """The requests here are all of the protocol, so that a new one can not be forgotten."""
    assert {type(body) for body in BODIES} | set(SERVED) == {command.request for command in COMMANDS}


@pytest.mark.asyncio
@pytest.mark.parametrize("body", BODIES, ids=[type(body).__name__ for body in BODIES])
async def test_l28_a_handler_that_fails_answers(tmp_socket_dir, body):
    """An exception in any handler is a typed error for its own request within a moment, and the connection goes on."""
    async with serving(tmp_socket_dir, core=BrokenCore()) as rig:
        with await rig.client() as client:
            for _ in range(2):
                reply = await asyncio.wait_for(client.ask(body), 60)
                assert isinstance(reply, replies.Failed)
                assert (reply.code, bool(reply.remedy)) == ("internal", True)
            assert rig.services.users.in_flight == 0
            assert not rig.fatal


@pytest.mark.asyncio
@pytest.mark.parametrize("failures", [900, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
async def test_l28_failures_leave_nothing(tmp_socket_dir, failures):
    """Whatever the number of failed requests, neither requests in flight nor memory grow."""
    core = BrokenCore()
    async with serving(tmp_socket_dir, core=core) as rig:
        with await rig.client() as client:
            tracemalloc.start()
            try:
                sizes = [await _failing(client, core, failures // 3) for _ in range(3)]
            finally:
                tracemalloc.stop()
            assert rig.services.users.in_flight == 0
            assert sizes[2] - sizes[1] < failures // 3 * 100, sizes


async def _failing(client, core, count):
    """Fail so often, and return the memory that is in use."""
    for number in range(count):
        reply = await client.ask(BODIES[number % len(BODIES)])
        assert isinstance(reply, replies.Failed)
    core.decided.clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


LANES = {
    "copies": "jobs_copy",
    "hashes": "jobs_hash",
    "disk": "jobs_disk",
    "reads": "jobs_read",
    "arenas": "jobs_arena",
}
"""Lanes of the workers, each with the counter of a status report that shows it."""


@pytest.mark.asyncio
@pytest.mark.parametrize("lane", LANES)
async def test_l26_a_worker_that_hangs_is_seen_and_holds_nobody_up(lane):
    """A job that never ends is counted for its lane, while the loop turns and the other lanes and kinds work."""
    answered = []
    workers = Workers(answered.append, copies=1, reads=1)
    hang = threading.Event()
    try:
        _start(workers, lane, STUCK, hang.wait)
        others = [(name, kind) for name in LANES for kind in _kinds(name) if (name, kind) != (lane, STUCK)]
        for name, kind in others:
            _start(workers, name, kind, lambda: None)
        await until(lambda: len(answered) == len(others))
        assert {name: count for name, count in workers.running().items() if count} == {LANES[lane]: 1}
    finally:
        hang.set()
        await asyncio.to_thread(workers.close)


STUCK = Kind.COMPRESSED_KV
BY_KIND = ("hashes", "reads")
"""Lanes in which each kind has threads of its own."""


def _kinds(lane):
    return list(Kind) if lane in BY_KIND else [STUCK]


def _start(workers, lane, kind, work):
    def job():
        work()
        return EngineSilent(1, silent=True)

    where = getattr(workers, lane)
    if lane == "copies":
        where.start(1, job, lambda _: None, lambda: None)
    elif lane in BY_KIND:
        where[kind].start(job, lambda _: None)
    else:
        where.start(job, lambda _: None)


@pytest.mark.asyncio
async def test_l26_requests_without_jobs_are_answered_beside_those_that_wait(tmp_socket_dir):
    """Status is answered on the same connection while a request waits for a job that hangs, and counts it."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            waits = await client.send(requests.Release(5))
            assert isinstance(await client.ask(requests.Status()), replies.StatusReport)
            assert rig.writer.statistics().parked == 1
            assert client.bodies == [], f"request {waits} was answered, though its job is not"
