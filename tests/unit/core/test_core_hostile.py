"""What a caller may get wrong, by fault or on purpose: each is refused in words, and nothing is changed by it."""

import pytest
from msgspec.structs import replace

from kvledger.kinds import Form, Kind
from kvledger.wire.replies import Failed
from kvledger.wire.requests import (
    Abort,
    Acquire,
    Boundary,
    Commit,
    Describe,
    Evict,
    Fingerprints,
    Offload,
    Put,
    PutRange,
    Register,
    Release,
    Renew,
    Reserve,
    Restore,
    Settle,
)
from kvledger_storage.events import BoundaryRefused, decode
from kvledgerd.core.commands import ArenaFailed, ArenaMade, Caller
from kvledgerd.core.config import CoreConfig
from support.layouts import pick, recurrent, window
from support.soon import soon
from support.world import User, World, group, layout

PROMPT = list(range(600))
OTHER = [t + 1000 for t in PROMPT]


def stored(letters="CXST", **fields):
    """A user who stored 512 tokens."""
    user = World(**fields).engine()
    number = user.register(pick(letters))
    user.store(number, PROMPT, 512)
    return user, number


def refused(user, request):
    """Send a request that has to be refused in words, and that changes nothing but the count of useless boundaries."""
    state, length = user.world.state, len(user.world.log)
    before, counted = state.digest(), state.stored_unusable
    reply = user.ask(request)
    assert isinstance(reply, Failed), reply
    assert reply.message
    new = [decode(raw).event for raw in user.world.log[length:]]
    assert {type(event) for event in new} <= {BoundaryRefused}
    assert state.stored_unusable == counted + len(new)
    state.stored_unusable = counted
    assert state.digest() == before
    state.stored_unusable += len(new)
    return reply


KINDS = [(named, name) for name in "CXST" for named in Kind]


@pytest.mark.parametrize(("named", "name"), KINDS, ids=[f"{k.name}-for-{n}" for k, n in KINDS])
def test_a_command_that_names_a_wrong_kind_is_a_routing_error(named, name):
    """Put and evict name the kind of what they mean; of the five kinds only the right one is let through."""
    user, number = stored()
    actual = user.world.state.layouts[number].layout.group(name).kind
    evict = Evict(named, number, user.boundary(number, PROMPT, 512), name)
    reserved = user.reserve(number, OTHER, 512)
    unit = user.world.state.units[reserved.unit]
    groups = user.world.state.layouts[number].layout.groups
    index = next(i for i, item in enumerate(unit.objects) if groups[item.group].name == name)
    put = Put(reserved.unit, [PutRange(named, index, 0, 0, 16)])
    if named is actual:
        assert user.ok(evict).dropped > 0
        user.world.rings[user.caller.connection, 0] = bytes(16)
        user.ok(put)
        return
    for request in (evict, put):
        reply = refused(user, request)
        assert (reply.code, actual.name in reply.message or named.name in reply.message) == ("routing", True)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.DISK_PREFIX])
@pytest.mark.parametrize("request_type", [Offload, Restore])
def test_only_disk_prefixes_are_offloaded_and_restored(request_type, kind):
    """Offload and restore act on disk prefixes and on nothing else."""
    user, number = stored()
    at = user.boundary(number, PROMPT, 512)
    assert refused(user, request_type(number, at, kind=kind)).code == "routing"


@pytest.mark.parametrize("repeat", ["twice the same", "a known block later", "a known block of another path"])
def test_hashes_that_are_no_chain_are_refused(repeat):
    """One hash at two places of the tree would be two prompts with one name: it is refused, and looks up nothing."""
    user, number = stored("CM")
    known = user.boundary(number, PROMPT, 512).hashes
    fresh = user.boundary(number, OTHER, 256).hashes
    hashes = {
        "twice the same": fresh * 2,
        "a known block later": known[:32] * 2,
        "a known block of another path": fresh + known[32:],
    }[repeat]
    reply = refused(user, Reserve(number, Boundary(hashes)))
    assert (reply.code, reply.field) == ("caller", "end.hashes")
    usable = user.ok(Acquire(number, 1000, hashes)).usable_tokens
    assert usable == 0
    assert user.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.hostile("LO11")
@pytest.mark.parametrize("align", [1, 2**31, 2**31 - 1])
@pytest.mark.parametrize("tokens", [2**40, 2**40 - 1, 1])
def test_a_look_up_of_any_size_is_decided_at_once(tokens, align):
    """No number that a caller sends makes a decision long."""
    user, number = stored()
    soon(lambda: user.ok(Acquire(number, tokens, b"", leave=0, align=align)), 0.5)


@pytest.mark.parametrize("letters", ["M", "CM", "CXST"])
def test_nothing_ends_at_zero(letters):
    """A boundary at no token is refused: no look-up can resume there."""
    user = World().engine()
    number = user.register(pick(letters))
    assert refused(user, Reserve(number, Boundary(b""))).code == "commit_refused"
    assert refused(user, Offload(number, Boundary(b""))).code == "commit_refused"


@pytest.mark.parametrize("residue", [1, 2, 255])
def test_a_position_inside_a_row_is_no_disk_prefix(residue):
    """What no unit may end at can be neither offloaded nor restored."""
    user, number = stored("C")
    at = replace(user.boundary(number, PROMPT, 512 + residue), residue=residue)
    for request in (Offload(number, at), Restore(number, at)):
        assert refused(user, request).code == "commit_refused"


BOUNDARIES = {
    "hashes": Boundary(b"\1" * 33),
    "residue": Boundary(b"", 256, b"\1" * 32),
    "residue_hash": Boundary(b"", 4, b""),
}


@pytest.mark.hostile("ID08")
@pytest.mark.parametrize("wrong", BOUNDARIES)
@pytest.mark.parametrize("request_type", [Reserve, Offload, Restore, Describe])
def test_a_malformed_boundary_names_its_field(request_type, wrong):
    """Hashes cut short, a residue as long as a block, a residue without its hash: the field is named."""
    user, number = stored()
    reply = refused(user, request_type(number, BOUNDARIES[wrong]))
    assert (reply.code, reply.field.split(".")[-1]) == ("caller", wrong)


def test_more_hashes_than_tokens_are_refused():
    """A look-up may not claim more blocks than its prompt has."""
    user, number = stored()
    hashes = user.boundary(number, PROMPT, 512).hashes
    assert refused(user, Acquire(number, 511, hashes)).field == "hashes"


def foreign_requests(number, lease, unit, at):
    """Requests that name a layout, lease or unit."""
    return {
        "acquire": Acquire(number, 600, at.hashes),
        "reserve": Reserve(number, at),
        "evict": Evict(Kind.COMPRESSED_KV, number, at, "C"),
        "offload": Offload(number, at),
        "restore": Restore(number, at),
        "describe": Describe(number, at),
        "settle": Settle(lease, 0),
        "renew": Renew(lease),
        "release": Release(lease),
        "fingerprints": Fingerprints(lease),
        "put": Put(unit, [PutRange(Kind.COMPRESSED_KV, 0, 0, 0, 16)]),
        "commit": Commit(unit),
        "abort": Abort(unit),
    }


NAMES = list(foreign_requests(0, 0, 0, Boundary(b"")))


@pytest.mark.hostile("ID01")
@pytest.mark.parametrize("name", NAMES)
def test_foreign_and_unknown_are_one_answer(name):
    """Layout, lease and unit of another tenant are answered word for word as numbers that were never handed out."""
    user, number = stored()
    lease, unit = user.acquire(number, PROMPT).lease, user.reserve(number, OTHER, 512).unit
    stranger = user.world.engine("stranger", tenant="strangers")
    at = user.boundary(number, PROMPT, 512)
    numbers = {"layout": number, "lease": lease, "unit": unit}
    foreign = refused(stranger, foreign_requests(number, lease, unit, at)[name])
    unknown = refused(stranger, foreign_requests(number + 7, lease + 700, unit + 700, at)[name])
    assert (foreign.code, foreign.field, foreign.remedy) == (unknown.code, unknown.field, unknown.remedy)
    named = numbers[foreign.field]
    assert foreign.message.replace(str(named), "#") == unknown.message.replace(str(named + _step(foreign.field)), "#")


def _step(field):
    return 7 if field == "layout" else 700


@pytest.mark.hostile("OR04")
@pytest.mark.parametrize("name", [n for n in NAMES if n in {"settle", "renew", "release", "put", "commit", "abort"}])
@pytest.mark.parametrize("arenas", [True, False])
def test_receipts_of_an_older_incarnation_are_refused(name, arenas):
    """A lease or unit of before a restart is not held after it, even by an engine of the same number."""
    user, number = stored()
    lease, unit = user.acquire(number, PROMPT).lease, user.reserve(number, OTHER, 512).unit
    world = user.world
    world.restart(arenas=arenas)
    again = world.engine("engine")
    reply = refused(again, foreign_requests(number, lease, unit, again.boundary(number, PROMPT, 512))[name])
    assert reply.code in {"lease_lost", "generation"}
    fresh = again.store(number, OTHER, 256)
    assert fresh.commit_id > 2**32


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_that_has_ended_is_told_so(name):
    """A request that waited while its engine ended is refused in words and holds nothing."""
    user, number = stored()
    lease, unit = user.acquire(number, PROMPT).lease, user.reserve(number, OTHER, 512).unit
    user.leave()
    at = user.boundary(number, PROMPT, 512)
    assert refused(user, foreign_requests(number, lease, unit, at)[name]).field == "engine"


def test_an_engine_that_never_was_is_told_so():
    """A caller whose engine is unknown is refused like one whose engine has ended."""
    user, number = stored()
    ghost = User(user.world, Caller(9, 99, "default"))
    assert refused(ghost, Acquire(number, 1, b"")).field == "engine"


@pytest.mark.parametrize("answer", [ArenaMade, ArenaFailed])
def test_an_arena_is_answered_for_once(answer):
    """A second answer about an arena, or one about an arena of before a restart, changes nothing."""
    user, number = stored()
    for arena in list(user.world.state.arenas):
        before = user.world.state.digest()
        extra = ("late",) if answer is ArenaFailed else ()
        user.world.do(answer(1, arena, *extra))
        assert user.world.state.digest() == before
    assert user.acquire(number, PROMPT).usable_tokens == 512


def test_layouts_beyond_their_cap_are_refused():
    """Each layout stays for the life of the log, so their number has a cap; known ones are still answered."""
    user = World(CoreConfig(max_layouts=2)).engine()
    first = user.register(pick("C"))
    user.register(pick("CM"))
    reply = refused(user, Register(pick("CXST")))
    assert (reply.code, reply.field, "grep LayoutRegistered" in reply.remedy) == ("limit", "max_layouts", True)
    assert user.register(pick("C")) == first


@pytest.mark.parametrize("what", ["layers", "shards"])
def test_layouts_are_counted_by_what_they_take(what):
    """A layout stays in memory for good, and one can take megabytes: a tenant's together have a cap in bytes."""
    many = {"layers": tuple(range(60_000, 64_096))} if what == "layers" else {"shards": 1023}
    groups = [group(f"g{at}", Kind.COMPRESSED_KV, rows_per_page=16, **many) for at in range(4)]
    world = World(CoreConfig(layout_bytes=1 << 21))
    user, other = world.engine(), world.engine("other", "other")
    for number in range(8):
        reply = user.ask(Register(layout(*groups, model=f"m{number}")))
        if isinstance(reply, Failed):
            break
    assert (number < 5, reply.code, reply.field) == (True, "limit", "layout_bytes")
    assert user.register(layout(*groups, model="m0")) == 1
    other.register(layout(*groups, model="m0"))
    assert sum(known.weight_bytes for known in world.state.layouts.values() if known.tenant == "default") < 4 << 20


def test_a_tenant_that_fills_its_layouts_leaves_room_for_others():
    """The cap on layouts is one of each tenant: a full one takes nothing from another, and numbers stay distinct."""
    world = World(CoreConfig(max_layouts=1))
    full, other = world.engine(), world.engine("other", "other")
    numbers = [full.register(pick("C")), other.register(pick("C"))]
    assert numbers == [1, 2]
    assert refused(full, Register(pick("CM"))).field == "max_layouts"
    assert refused(other, Register(pick("CM"))).field == "max_layouts"


def test_a_layout_without_weights_is_refused():
    """Nothing can prove a reuse right where the weights are not named."""
    user = World().engine()
    assert refused(user, Register(pick("C", weights_digest=""))).field == "weights_digest"


@pytest.mark.parametrize("cap", ["max_leases", "max_units"])
def test_what_one_engine_may_hold_has_a_cap(cap):
    """Leases and open reservations of one engine are capped, with the cap's name in the refusal."""
    user, number = stored(config=CoreConfig(**{cap: 2}))
    for _ in range(2):
        user.acquire(number, PROMPT)
        user.reserve(number, OTHER, 512)
    request = (
        Acquire(number, 600, user.boundary(number, PROMPT, 512).hashes)
        if cap == "max_leases"
        else Reserve(number, user.boundary(number, OTHER, 512))
    )
    reply = refused(user, request)
    assert (reply.code, reply.field) == ("limit", cap)


def test_a_layout_of_states_alone_is_no_mismatch_beside_rows():
    """A model that keeps only states shares the tree with one that keeps rows, and each finds its own."""
    user = World().engine()
    rows, states = user.register(pick("CX")), user.register(pick("M"))
    user.store(rows, PROMPT, 512)
    user.store(states, PROMPT, 512)
    found = user.acquire(states, PROMPT)
    assert (found.restorable, found.hash_tokens) == ([512], 512)
    assert user.acquire(rows, PROMPT).restorable == [256, 512]


def test_windows_alone_need_only_their_last_pages():
    """A layout of windows finds its boundary though its first blocks hold nothing, whatever lies there of others."""
    user = World().engine()
    rows, windows = user.register(pick("C")), user.register(layout(window("S", 64, 128)))
    user.store(rows, PROMPT, 512)
    user.store(windows, PROMPT, 512)
    assert user.acquire(windows, PROMPT).restorable == [512]


def test_a_snapshot_of_another_layout_is_named_at_its_boundary():
    """Where a layout of states alone finds only another's state, the cut is one of identity."""
    user = World().engine()
    user.store(user.register(layout(recurrent())), PROMPT, 512)
    other = user.register(layout(recurrent(), weights_digest="w2"))
    cuts = user.acquire(other, PROMPT).cuts
    assert [(c.end, c.code.value) for c in cuts if c.layer == 2] == [(512, "identity_mismatch")]


def test_a_group_beside_a_disk_prefix_is_a_routing_error():
    """Naming a group and the kind of disk prefixes contradicts itself, and forgets nothing."""
    user, number = stored()
    user.offload(number, PROMPT, 512)
    at = user.boundary(number, PROMPT, 512)
    for name in "CXST":
        assert refused(user, Evict(Kind.DISK_PREFIX, number, at, name)).code == "routing"
    assert user.ok(Evict(Kind.DISK_PREFIX, number, at)).dropped > 0


def test_a_group_that_keeps_whole_states_only_counts_as_such():
    """A window kept as snapshots is needed at exactly its boundary."""
    user = World().engine()
    number = user.register(layout(group("W", Kind.SWA_WINDOW, Form.SNAPSHOT, window=128)))
    user.store(number, PROMPT, 300)
    assert [o.position for o in user.acquire(number, PROMPT).offers] == [300]
    assert not user.acquire(number, PROMPT[:300]).offers
