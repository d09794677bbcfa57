"""Lines about refusals: each uid has a few, the rest is counted and told."""

import asyncio

import pytest
from structlog.testing import capture_logs

from kvledgerd.server import refusal_log
from kvledgerd.server.refusal_log import RefusalLog


@pytest.mark.asyncio
async def test_a_uid_has_a_few_lines_and_the_rest_is_counted():
    """What one uid has too much of is left out and told as a number; other uids, and later ones, have lines."""
    log, written = RefusalLog(lines=2, seconds=0.02), []
    with capture_logs() as said:
        for uid in (1, 1, 1, 1, 2):
            log.tell(lambda event, **fields: written.append(fields["uid"]), uid, "refused", uid=uid)
        await asyncio.sleep(0.05)
        log.tell(lambda event, **fields: written.append(fields["uid"]), 1, "refused", uid=1)
    assert written == [1, 1, 2, 1]
    assert [(line["event"], line["uid"], line["lines"]) for line in said] == [("refusals left out", 1, 2)]


@pytest.mark.asyncio
async def test_uids_beyond_number_share_their_lines(monkeypatch):
    """Whoever has as many uids as it likes, as in a user namespace, has no more lines for it."""
    monkeypatch.setattr(refusal_log, "_UIDS", 3)
    log, written = RefusalLog(lines=2), []
    for uid in range(100):
        log.tell(lambda event, **fields: written.append(fields["uid"]), uid, "refused", uid=uid)
    assert written == [0, 1, 2, 3, 4]
