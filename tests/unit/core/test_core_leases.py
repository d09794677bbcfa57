"""A lease belongs to one engine: nobody else ends it, narrows it or asks what it covers."""

import pytest

from kvledger.wire.replies import Done, Failed
from kvledger.wire.requests import Fingerprints, Release, Renew, Settle
from support.layouts import pick
from support.world import World

PROMPT = list(range(300))


@pytest.mark.parametrize("ask", [Release, Renew, Fingerprints, lambda lease: Settle(lease, 0)])
def test_a_lease_answers_to_its_owner_alone(ask):
    """Another engine of the same tenant is told that the lease is not held, and its owner still holds it."""
    user = World().engine("owner")
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 256)
    lease = user.acquire(number, PROMPT).lease
    other = user.world.engine("other")
    refused = other.ask(ask(lease))
    assert isinstance(refused, Failed)
    assert refused.code == "lease_lost"
    assert user.ok(Release(lease)) == Done()
