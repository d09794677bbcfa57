"""Stopping: workers may be closed only when nothing waits for the log any more."""

from __future__ import annotations

import asyncio

import pytest

from kvledger.wire.requests import Commit
from kvledgerd.core.decision import Ack
from kvledgerd.loop.writer import WriterLoop
from support.shell import SmallCarrier, SmallCore, SmallLog, ask

DURABLE = 2


@pytest.mark.asyncio
async def test_effects_that_wait_for_a_sync_are_waited_for():
    """Until the sync has returned the loop is not acknowledged, and afterwards the effect has been carried out."""
    log, carrier = SmallLog(), SmallCarrier()
    writer = WriterLoop(SmallCore(), log, carrier, last_seq=0, on_fatal=pytest.fail)
    await writer.submit(ask(Commit(DURABLE)))
    waiting = asyncio.create_task(writer.acknowledged())
    writer.reached(Ack.WRITTEN, log.last_seq)
    await asyncio.sleep(0.02)
    assert (waiting.done(), carrier.carried) == (False, [])

    writer.reached(Ack.DURABLE, log.last_seq)
    await asyncio.wait_for(waiting, 60)
    assert len(carrier.carried) == 1


@pytest.mark.asyncio
async def test_a_stopped_loop_waits_for_nothing():
    """After a failure of the log no sync returns, and the wait ends all the same."""
    fatal = []
    writer = WriterLoop(SmallCore(), SmallLog(), SmallCarrier(), last_seq=0, on_fatal=fatal.append)
    await writer.submit(ask(Commit(DURABLE)))
    waiting = asyncio.create_task(writer.acknowledged())
    await asyncio.sleep(0)
    writer.stop(OSError("the disk is gone"))

    await asyncio.wait_for(waiting, 60)
    assert [str(error) for error in fatal] == ["the disk is gone"]
