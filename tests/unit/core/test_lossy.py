"""The lossy tier: what is quantised on its way to disk, who is offered what comes back, and what is never forgotten."""

import pytest

from kvledger.errors import CommitRefusedError, LeaseLost
from kvledger.kinds import Kind
from kvledger.verdict import Code, Exactness, Layer
from kvledger.wire.requests import Describe, Evict, Fingerprints, Offload, Release, Restore
from kvledger_storage.disk import fingerprint_of
from kvledgerd.core.commands import RecordsLost, Written
from kvledgerd.core.config import PAGE
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.copies.records import blob_of
from kvledgerd.core.invariants import violations
from kvledgerd.core.state import State
from kvledgerd.salvage.events import rebuilt_events
from kvledgerd.salvage.segments import read_segments
from kvledgerd.snapshots import proof
from support.devices import set_aside
from support.disk_faults import flip
from support.lossy import END, PROMPT, config, floats, lossy_layout, within_bound
from support.store_world import StoreWorld

ROWS = 2 * 4 * 2112  # bytes of the rows of both blocks, padding included
QUANTISED = 2 * 4 * 16 * (64 + 1)


def begun(precision=Precision.E4M3, what=None, **fields):
    """Return a user with a prompt in memory, and its layout."""
    user = StoreWorld(config(precision), **fields).engine()
    number = user.register(what or lossy_layout())
    user.store(number, PROMPT, END)
    return user, number


def gone_to_disk(*args, **fields):
    """The same with the prompt on disk alone."""
    user, number = begun(*args, **fields)
    user.offload(number, PROMPT, END)
    return user, number


def back(user, number):
    """Bring the prompt back and return what a caller is offered that accepts approximations."""
    user.restore(number, PROMPT, END)
    return user.acquire(number, PROMPT, approx=True)


def told(user, number):
    """Return of each object its group, the bytes of its disk copy, and whether no exact copy is left."""
    found = user.ok(Describe(number, user.boundary(number, PROMPT, END))).objects
    return [(one.group, one.stored, one.approx) for one in found]


def test_rows_are_quantised_and_the_rest_is_copied():
    """Records of bf16 rows hold a byte for each number and one for 64; what is in fp8 already is written as it is."""
    user, number = gone_to_disk()
    assert told(user, number) == [(0, QUANTISED // 2, True)] * 2 + [(1, 2048, False)]
    state = user.world.state
    assert (state.quantised_records, state.quantised_bytes) == (2, 2 * 4096 * 3)
    assert user.counters()["disk_quantised_records"] == 2


@pytest.mark.parametrize(
    "what",
    [
        lossy_layout(allow_approx=False),
        lossy_layout(strict_provenance=True),
        lossy_layout(rows={"dtype": ""}),
        lossy_layout(rows={"dtype": "float8_e4m3fn"}),
        lossy_layout(rows={"row_bytes": 68, "page_bytes": 1100}),
    ],
    ids=["the layout forbids it", "strict provenance", "no type", "fp8", "groups would cross pages"],
)
def test_what_nobody_allowed_is_written_as_it_is(what):
    """A layout that forbids approximations, numbers of another type and pages of half groups stay exact."""
    user, number = gone_to_disk(what=what)
    assert not any(approx for _, _, approx in told(user, number))
    user.restore(number, PROMPT, END)
    assert user.acquire(number, PROMPT).offers[0].exactness is Exactness.EXACT


def test_the_decision_is_logged():
    """The event that begins an offload names the precision of each object, its end has the fingerprints."""
    user, _ = begun()
    user.offload(1, PROMPT, END)
    (started,), (ended,) = user.world.events("offload_started.1"), user.world.events("offloaded.1")
    assert started.precisions == (Precision.E4M3, Precision.E4M3, Precision.EXACT)
    assert [index for index, _ in ended.prints] == [0, 1]


def test_while_memory_has_it_a_prompt_is_exact():
    """A quantised copy on disk changes nothing for those who read memory; once that is gone it is all there is."""
    user, number = begun()
    user.offload(number, PROMPT, END, drop=False)
    assert user.acquire(number, PROMPT).offers[0].exactness is Exactness.EXACT
    user.evict(number, PROMPT, END, "C")
    assert not told(user, number)[0][2], "a lease keeps it"
    user.leave()
    other = user.world.engine("other")
    other.evict(number, PROMPT, END, "C")
    assert told(other, number)[0][2]


def test_a_caller_without_approx_misses_and_is_told_why():
    """The cut names layer 4, the group and who refuses it, before a restore and after it."""
    user, number = gone_to_disk()
    for _ in range(2):
        answer = user.acquire(number, PROMPT, restore=True)
        assert not answer.offers
        cut = next(cut for cut in answer.cuts if cut.end == END)
        assert (cut.layer, cut.group, cut.code) == (Layer.BYTES, "C", Code.LOSSY)
        assert "the caller does not allow" in cut.detail
        user.ok(Restore(number, user.boundary(number, PROMPT, END)))


def test_a_caller_with_approx_is_offered_it_as_such():
    """Offered are the bytes that have to be read, fewer than the objects have, and then what they became."""
    user, number = gone_to_disk()
    offer = user.acquire(number, PROMPT, restore=True, approx=True).offers[0]
    assert (offer.exactness, offer.ready, offer.read_bytes) == (Exactness.APPROX, False, QUANTISED + 2048)
    offer = back(user, number).offers[0]
    assert (offer.exactness, offer.ready) == (Exactness.APPROX, True)


@pytest.mark.parametrize("precision", [Precision.E4M3, Precision.INT8])
def test_what_comes_back_is_within_the_bound(precision):
    """Each number is as near as its group of 64 allows, padding is zero, and a second trip changes nothing more."""
    user, number = begun(precision)
    first = user.read(user.acquire(number, PROMPT))
    user.leave()
    user = user.world.engine("other")
    user.offload(number, PROMPT, END)
    second = user.read(back(user, number))
    assert second[1, 0, 448] == first[1, 0, 448]
    for at in ((0, 0, 0), (0, 0, 256)):
        (before, _), (after, padding) = floats(first[at]), floats(second[at])
        assert within_bound(before, after, precision)
        assert (before != after).any()
        assert not padding.any()
    user.leave()
    user = user.world.engine("third")
    user.ok(Evict(Kind.DISK_PREFIX, number, user.boundary(number, PROMPT, END)))
    user.offload(number, PROMPT, END)
    assert user.read(back(user, number)) == second


def test_bytes_that_went_bad_in_memory_are_not_quantised():
    """What does not have its fingerprint any more is refused before a record with a fingerprint of its own is made."""
    user, number = begun()
    cell = next(cell for cell in user.world.state.cells.values() if cell.is_block)
    user.world.memory[cell.place(0)[:2]] = bytearray(8448)
    reply = user.ask(Offload(number, user.boundary(number, PROMPT, END)))
    assert "fingerprint" in reply.message
    assert not user.world.state.disk_bytes


def test_an_exact_copy_takes_the_place_of_an_approximation():
    """Whoever computes the prompt anew brings all rows again, and from then on it is exact on every path."""
    user, number = gone_to_disk()
    assert user.store(number, PROMPT, END).stored == 2
    answer = user.acquire(number, PROMPT)
    assert answer.offers[0].exactness is Exactness.EXACT
    user.read(answer)
    assert user.world.state.quantised_records == 0
    assert ("C", "an exact copy takes its place") in user.world.evicted()


def test_a_hit_is_not_told_the_fingerprints_of_what_took_its_place():
    """Its bytes stay as they were handed out, and who asks for their fingerprints is told to look up again."""
    user, number = gone_to_disk()
    hit = back(user, number)
    read = user.read(hit)
    before = user.ok(Fingerprints(hit.lease)).fingerprints
    assert before == b"".join(fingerprint_of(bytes(data)) for data in read.values())
    user.world.engine("exact").store(number, PROMPT, END)
    assert user.read(hit) == read
    assert user.ask(Fingerprints(hit.lease)).code == LeaseLost.code


def test_what_is_computed_over_an_approximate_hit_is_approximate():
    """Under the hit nothing counts as exact: neither what follows it nor what is handed in again."""
    user, number = gone_to_disk()
    hit = back(user, number)
    longer = [*PROMPT[:END], *range(5000, 5300)]
    user.store(number, longer, 768)
    assert user.store(number, PROMPT, END).stored == 0
    user.ok(Release(hit.lease))
    user.store(number, PROMPT, END)
    offers = user.acquire(number, longer).offers
    assert [(one.position, one.exactness) for one in offers] == [(END, Exactness.EXACT)]
    assert user.acquire(number, longer, approx=True).offers[0].position == 768


@pytest.mark.parametrize(
    ("other", "end"),
    [(PROMPT, 256), ([*PROMPT[:256], *range(5000, 5300)], END)],
    ids=["the hit goes on behind the unit", "it turns off before the unit's end"],
)
def test_what_is_cut_out_of_an_approximate_hit_is_approximate(other, end):
    """A shorter prompt and one that begins alike may hand the hit's own rows in again, and are not exact by that."""
    user, number = gone_to_disk()
    hit = back(user, number)
    assert user.store(number, other, end).stored
    user.ok(Release(hit.lease))
    assert not user.acquire(number, other).offers
    assert user.acquire(number, other, approx=True).offers


def test_an_approximate_hit_of_another_prompt_casts_no_doubt():
    """What has exact blocks in common with it, or none, is exact as without it."""
    user, number = gone_to_disk()
    back(user, number)
    other = [7, *PROMPT]
    user.store(number, other, END)
    assert user.acquire(number, other).offers[0].exactness is Exactness.EXACT


def test_what_begins_behind_approximate_rows_is_approximate():
    """Without any hit the rows before a unit tell what it was computed over."""
    user, number = gone_to_disk()
    longer = [*PROMPT[:END], *range(5000, 5300)]
    user.store(number, longer, 768, first_block=2)
    user.store(number, PROMPT, END)
    assert user.acquire(number, longer).usable_tokens == END


def test_an_engine_may_say_that_it_computed_over_an_approximation():
    """What it says holds, though its hit is released and it brings all rows itself."""
    user, number = begun(precision=None)
    other = [7, *PROMPT]
    user.store(number, other, END, approx=True)
    assert not user.acquire(number, other).offers
    assert user.acquire(number, other, approx=True).offers[0].exactness is Exactness.APPROX
    user.offload(number, other, END)
    assert [p for event in user.world.events("offload_started.1") for p in event.precisions] == [Precision.APPROX] * 3
    back(user, number)
    assert not user.acquire(number, other).offers


def test_a_layout_that_allows_no_approximation_takes_none():
    """What no look-up could ever use is refused with the reason."""
    user, number = begun(what=lossy_layout(allow_approx=False))
    refused = user.ask_reserve(number, [7, *PROMPT], END, approx=True)
    assert (refused.code, refused.field) == (CommitRefusedError.code, "approx")


def test_the_scrubber_reads_the_stored_bytes(tmp_path):
    """A quantised record is compared with its own fingerprint: a whole one stays, a damaged one is dropped, once."""
    user, _ = gone_to_disk(directory=str(tmp_path))
    world = user.world
    world.scrub()
    assert (world.state.tier.records, world.state.quantised_records) == (4, 2)
    (segment,) = (tmp_path / "data").glob("*.seg")
    flip(segment, 2 * PAGE + 100)
    world.wall += 1000
    world.scrub()
    assert (world.state.quantised_records, world.state.tier.damaged) == (1, 1)


def test_device_pools_take_no_approximations():
    """An engine with an approximate hit can not make it exact by way of its device."""
    user, number = gone_to_disk()
    pages = set_aside(user, number, 16)
    hit = back(user, number)
    refused = pages.ask(PROMPT, END)
    assert refused.code == CommitRefusedError.code
    user.ok(Release(hit.lease))


def test_whoever_asks_for_exact_records_gets_them():
    """A record that is quantised is written anew where memory still has the committed bytes."""
    user, number = begun()
    user.offload(number, PROMPT, END, drop=False)
    at = user.boundary(number, PROMPT, END)
    written = user.ok(Offload(number, at, drop_memory=True, exact=True))
    assert (written.objects, user.world.state.quantised_records) == (2, 0)
    user.restore(number, PROMPT, END)
    assert user.acquire(number, PROMPT).offers[0].exactness is Exactness.EXACT


def writing_anew():
    """A user whose quantised prompt is being written exactly, and the number of that job."""
    user, number = begun()
    user.offload(number, PROMPT, END, drop=False)
    user.world.held = []
    user.ask(Offload(number, user.boundary(number, PROMPT, END), exact=True))
    (write,) = user.world.held
    return user, number, write.job


@pytest.mark.parametrize("cut", ["failed", "power"])
def test_an_approximation_lives_until_the_exact_record_is_durable(cut):
    """If the write fails, or power is lost before its end, the prompt is still there for who takes approximations."""
    user, number, job = writing_anew()
    world = user.world
    assert (world.state.quantised_records, world.replayed().digest()) == (2, world.state.digest())
    assert proof.proven(world.state)[1] == world.state.digest()
    world.held = None
    if cut == "failed":
        world.do(Written(job, error="no space left"))
    world.restart(arenas=False)
    user = world.engine("next")
    user.register(lossy_layout())
    assert back(user, number).offers[0].exactness is Exactness.APPROX


def test_an_exact_record_takes_the_place_of_one_that_was_lost_meanwhile():
    """A quantised record that is found damaged while the exact one is being written harms nothing, and none is left."""
    user, number, _ = writing_anew()
    world = user.world
    cell = next(cell for cell in world.state.cells.values() if cell.precisions)
    (slot,) = (slot for slot in range(len(cell.states)) if cell.precision(slot))
    lost = blob_of(world.state.layouts[number], cell, slot)
    writes, world.held = world.held, None
    world.do(RecordsLost((lost,), "damaged", "scrub"))
    assert world.state.quantised_records == 1
    world.held = writes
    world.release_effects()
    assert world.state.quantised_records == 0
    assert world.replayed().digest() == world.state.digest()
    world.restart(arenas=False)
    user = world.engine("next")
    user.register(lossy_layout())
    user.restore(number, PROMPT, END)
    assert user.acquire(number, PROMPT).offers[0].exactness is Exactness.EXACT


def test_a_restart_a_replay_and_a_snapshot_remember(tmp_path):
    """The log, an image of the state and the next incarnation all know what is approximate."""
    user, number = gone_to_disk(directory=str(tmp_path))
    back(user, number)
    world = user.world
    assert world.replayed().digest() == world.state.digest()
    _, digest = proof.proven(world.state)
    assert digest == world.state.digest()
    world.restart(arenas=True, boot=b"b" * 16)
    user = world.engine("next")
    assert user.register(lossy_layout()) == number
    assert not user.acquire(number, PROMPT, restore=True).offers
    assert back(user, number).offers[0].exactness is Exactness.APPROX


def test_a_rebuild_without_the_log_knows_the_precisions(tmp_path):
    """Each record tells its precision, so a prompt found by its files is offered to the same callers as before."""
    user, number = gone_to_disk(directory=str(tmp_path))
    old = user.world.state
    made = rebuilt_events(read_segments(tmp_path, verify=True, progress=lambda _: None), lambda _: True)
    assert violations(made.state) == []
    assert (made.state.disk_bytes, made.state.quantised_bytes) == (old.disk_bytes, old.quantised_bytes)
    world = user.world
    world.state, world.log = State(world.config), []
    world.record(made.events)
    world.restart()
    user = world.engine("next")
    number = user.register(lossy_layout())
    assert not user.acquire(number, PROMPT, restore=True).offers
    assert back(user, number).offers[0].exactness is Exactness.APPROX
