"""The wall clock stamps events and decides nothing."""

from __future__ import annotations

import time

import pytest

from kvledger.wire import replies, requests
from kvledger_storage import events
from kvledgerd.core.decision import Ack
from support.shell import SmallCore, serving

DAY_NS = 86_400 * 10**9


class StampingCore(SmallCore):
    """A core whose events are encoded as the daemon encodes them."""

    def encode(self, event, time_ms, actor):
        """Return the bytes that the log gets."""
        return events.encode(event, time_ms, actor)


@pytest.mark.hostile("TI01")
@pytest.mark.asyncio
@pytest.mark.parametrize("jump", [DAY_NS, -DAY_NS, -(10**18)])
async def test_a_clock_that_jumps_changes_no_answer(tmp_socket_dir, monkeypatch, jump):
    """A clock set forward or back, even before all earlier events, leaves replies, their order and the log as ever."""
    async with serving(tmp_socket_dir, core=StampingCore()) as rig:
        with await rig.client() as client:
            now = time.time_ns()
            for step in range(3):
                monkeypatch.setattr(time, "time_ns", lambda step=step: now + step % 2 * jump)
                for ack in Ack:
                    assert isinstance(await client.ask(requests.Renew(int(ack))), replies.Done)
        found = [events.decode(raw) for batch, _ in rig.log.batches for raw in batch]
        assert [one.event.lease for one in found if isinstance(one.event, events.LeaseEnded)] == [0, 1, 2] * 3
