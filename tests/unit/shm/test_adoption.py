import os

import pytest

from kvledger_storage.adoption import KnownArena, adopt_arenas, store_name
from kvledger_storage.arena import Arena
from support.shm import BOOT, LOG, TENANT, identity, open_descriptors

KNOWN = KnownArena(tenant=TENANT, kind=3, data_bytes=8192)


def stored(arena_id, **other):
    """Return the descriptor of an arena whose daemon is gone."""
    arena = Arena.create(identity(arena_id, **other), 8192)
    held = os.dup(arena.fd)
    arena.close()
    return held


@pytest.mark.hostile("AR02")
def test_known_arenas_are_adopted_and_absent_ones_are_named():
    """What the store returns and the log knows is adopted; what the log knows and the store lost is reported."""
    store = {store_name(number): [stored(number)] for number in (1, 2)}
    adoption = adopt_arenas(store, LOG, BOOT, {1: KNOWN, 2: KNOWN, 3: KNOWN})
    assert sorted(adoption.arenas) == [1, 2]
    assert adoption.absent == {3}
    assert adoption.refused == []
    for arena in adoption.arenas.values():
        arena.close()


@pytest.mark.hostile("AR02", "AR03", "OR05", "TI03")
def test_strangers_are_closed_and_named():
    """An unknown arena, one twice, one of another log, tenant, kind or size, and no arena at all are all refused."""
    before = open_descriptors()
    twin = stored(1)
    store = {
        "arena-1": [twin, os.dup(twin)],
        "arena-9": [stored(9)],
        "foreign": [stored(2, log_id=bytes(16))],
        "rebooted": [stored(3, boot_id=bytes(16))],
        "tenant": [stored(4, tenant=b"x" * 32)],
        "kind": [stored(5, kind=1)],
        "pipe": list(os.pipe()),
    }
    known = dict.fromkeys((1, 2, 3, 4, 5, 6), KNOWN) | {6: KnownArena(TENANT, 3, 4096)}
    store["size"] = [stored(6)]
    adoption = adopt_arenas(store, LOG, BOOT, known)
    assert sorted(adoption.arenas) == [1]
    assert adoption.absent == {2, 3, 4, 5, 6}
    assert {(name, error.field) for name, error in adoption.refused} == {
        ("arena-1", "arena.arena_id"),
        ("arena-9", "arena.arena_id"),
        ("foreign", "arena.log_id"),
        ("rebooted", "arena.boot_id"),
        ("tenant", "arena.tenant"),
        ("kind", "arena.kind"),
        ("size", "arena.data_bytes"),
        ("pipe", "arena"),
    }
    assert len(adoption.refused) == 9
    adoption.arenas[1].close()
    assert open_descriptors() == before
