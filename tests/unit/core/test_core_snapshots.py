"""Snapshots of states that are rare, and what is never published."""

import pytest

from kvledger.epochs import EpochState
from kvledger.wire.requests import DropPool
from kvledgerd.core.apply import DigestMismatchError
from kvledgerd.snapshots import proof
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.encode import encode_state
from support.devices import set_aside
from support.epochs import become
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))


def test_a_lease_that_outlives_a_device_pool_survives_a_snapshot():
    """Weights are retired under a lease of an engine with a device pool: the state is read back, and so is its end."""
    user = World().engine()
    number = user.register(pick("CS"))
    user.store(number, PROMPT, 512)
    set_aside(user, number, 8)
    lease = user.acquire(number, PROMPT)
    become(user, EpochState.RETIRED)
    state = user.world.state
    assert state.leases[lease.lease].pools
    assert not state.device_pools
    body, digest = proof.proven(state)
    assert decode_state(body, user.world.config).digest() == digest == state.digest()


def test_a_lease_on_the_disk_outlives_a_dropped_device_pool_in_a_snapshot():
    """A pool is dropped beside a lease on what lies on disk, which names the pool still: the state is read back."""
    user = World().engine()
    number = user.register(pick("C"))
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    pages = set_aside(user, number, 8)
    lease = user.acquire(number, PROMPT)
    user.ok(DropPool(pages.number))
    state = user.world.state
    assert state.leases[lease.lease].pools == (pages.number,)
    assert proof.proven(state)[1] == state.digest()


@pytest.mark.parametrize("wrong", [lambda _: b"\xc1", lambda _: encode_state(World().state)])
def test_a_snapshot_that_can_not_be_read_back_is_not_made(wrong, monkeypatch):
    """What is no image, or the image of another state, is refused where it is made and not where it is needed."""
    user = World().engine()
    user.store(user.register(pick("CS")), PROMPT, 512)
    monkeypatch.setattr(proof, "encode_state", wrong)
    with pytest.raises(DigestMismatchError, match="snapshot"):
        proof.proven(user.world.state)
