"""Conversions in the core: when they are offered, what they pin, and how they end when something happens meanwhile."""

import numpy as np
import pytest
import xxhash
from msgspec.structs import replace

from kvledger.conversions import conversion
from kvledger.errors import LayoutError
from kvledger.layout_rules import check_layout
from kvledger.verdict import Code, Exactness
from kvledger.wire.replies import Failed, Pending, Restored
from kvledger.wire.requests import Restore
from kvledger_kernels.relayout import Conversion, relayout_reference
from kvledgerd.core.commands import Converted, DegradeDue
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decision import ConvertSlots
from kvledgerd.core.lookup import converted
from support.formats import v4_layout, with_abi, with_group
from support.world import World

END = 448
PROMPT = list(range(END))
SPLIT, BY_ROWS = v4_layout(), v4_layout(split=False, csa_rows=16)


def convert(world, effect: ConvertSlots) -> Converted:
    """Do what the worker does."""
    prints = []
    for one in effect.objects:
        source = world.memory[one.arena, one.offset]
        assert xxhash.xxh3_128_digest(source) == one.fingerprint
        target = np.frombuffer(source, dtype=np.uint8)
        if one.formats is not None:
            target = np.empty(one.target_length, dtype=np.uint8)
            how = Conversion(*one.formats, layers=one.layers, rows=one.rows)
            relayout_reference(how, np.frombuffer(source, dtype=np.uint8), target)
        world.memory[one.target_arena, one.target_offset] = target.tobytes()
        prints.append((one.index, xxhash.xxh3_128_digest(target.tobytes())))
    return Converted(effect.job, tuple(prints))


class Workshop(World):
    """A world whose worker converts."""

    def run(self, effect) -> None:
        """Carry out one effect and answer it."""
        if isinstance(effect, ConvertSlots):
            self.do(convert(self, effect))
        else:
            super().run(effect)


@pytest.fixture
def world():
    """A world in which an engine has stored a boundary in split pages."""
    made = Workshop()
    writer = made.engine("writer")
    writer.store(writer.register(SPLIT), PROMPT)
    return made


@pytest.fixture
def reader(world):
    """An engine of another kind."""
    return world.engine("reader")


def held(world, reader):
    """Begin a conversion and return the layout's number and its effect, not carried out."""
    number = reader.register(BY_ROWS)
    world.held = []
    assert isinstance(reader.ask(Restore(number, reader.boundary(number, PROMPT), 0)), Pending)
    return number, next(one for one in world.held if isinstance(one, ConvertSlots))


def positions(reply) -> list[tuple[int, bool]]:
    """Return where a verdict offers to resume, and whether that is ready."""
    return [(offer.position, offer.ready) for offer in reply.offers]


def test_what_converts_is_offered_like_what_lies_on_disk(world, reader):
    """Boundaries of the other layout are offered, not ready; restored they are ready."""
    number = reader.register(BY_ROWS)
    assert positions(reader.acquire(number, [*PROMPT, 7])) == [(END, False)]

    assert isinstance(reader.restore(number, PROMPT), Restored)
    assert positions(reader.acquire(number, [*PROMPT, 7])) == [(END, True)]


def test_what_converts_is_cut_by_nothing(world, reader):
    """A mismatch of formats is no cut any more where it can be converted, and is one where nothing may be restored."""
    prompt = [7, *range(600)]
    writer = world.engine("another")
    writer.store(writer.register(SPLIT), prompt, 512)
    number = reader.register(BY_ROWS)
    offered, refused = reader.acquire(number, prompt), reader.acquire(number, prompt, restore=False)

    assert (offered.usable_tokens, offered.restorable, offered.coverage[0]) == (512, [512], 512)
    assert Code.ABI_MISMATCH not in {cut.code for cut in offered.cuts}
    assert Code.ABI_MISMATCH in {cut.code for cut in refused.cuts}


def test_a_look_up_considers_layouts_that_keep_something_of_the_prompt(world, reader, monkeypatch):
    """However many layouts a tenant registers, a look-up compares with its own what lies at its first block alone."""
    number = reader.register(BY_ROWS)
    for strides in range(1, 50):
        abi = {name: replace(one, strides=(strides,)) for name, one in BY_ROWS.abi.items()}
        reader.register(replace(BY_ROWS, abi=abi))
    compared = []

    def counted(stored, asked):
        compared.append(stored)
        return conversion(stored, asked)

    monkeypatch.setattr(converted, "conversion", counted)
    assert positions(reader.acquire(number, [*PROMPT, 7])) == [(END, False)]
    assert compared == [SPLIT]


def test_the_log_tells_where_converted_bytes_come_from(world, reader):
    """The reservation's event names the cells of the other layout, and a replay of the log makes the same state."""
    number = reader.register(BY_ROWS)
    reader.restore(number, PROMPT)
    reserved = world.events("unit_reserved.1")[-1]
    assert {world.state.cells[cell].layout for cell in reserved.sources} == {1}
    assert world.replayed().digest() == world.state.digest()


def test_sources_stay_while_they_are_converted(world, reader):
    """Their cells are pinned until the answer came, so nothing makes room of them."""
    _, effect = held(world, reader)
    pins = [cell.pins for cell in world.state.cells.values() if cell.layout == 1]
    assert pins
    assert all(pins)

    world.do(convert(world, effect))
    assert not any(cell.pins for cell in world.state.cells.values())


def test_who_asks_meanwhile_joins_the_conversion(world, reader):
    """A second request for the same boundary waits for the running job instead of starting another."""
    number, effect = held(world, reader)
    again = reader.beside().ask(Restore(number, reader.boundary(number, PROMPT), 0))

    assert isinstance(again, Pending)
    assert again.job == effect.job
    assert len(world.state.units) == 1


@pytest.fixture
def on_disk(world):
    """The same world once the boundary lies on disk alone."""
    writer = world.engine("offloads")
    writer.offload(writer.register(SPLIT), PROMPT)
    return world


def test_what_lies_on_disk_is_restored_and_converted_by_one_request(on_disk, reader):
    """A boundary of the other layout on disk is offered, and one request reads and converts it."""
    number = reader.register(BY_ROWS)
    assert positions(reader.acquire(number, [*PROMPT, 7])) == [(END, False)]

    assert isinstance(reader.restore(number, PROMPT), Restored)
    assert positions(reader.acquire(number, [*PROMPT, 7])) == [(END, True)]
    assert len(on_disk.events("restore_started.1")) == len(on_disk.events("unit_reserved.1")) - 1 == 1
    assert on_disk.replayed().digest() == on_disk.state.digest()


def test_who_does_not_wait_is_told_of_each_step(on_disk, reader):
    """Without wait the first answer tells of the restore, the next one of the conversion, the last that it is there."""
    number = reader.register(BY_ROWS)
    body = Restore(number, reader.boundary(number, PROMPT), 0)
    first, second, last = (reader.ask(body) for _ in range(3))

    assert isinstance(first, Pending)
    assert isinstance(second, Pending)
    assert first.job != second.job
    assert isinstance(last, Restored)


def test_damage_on_disk_ends_a_conversion_once(on_disk, reader):
    """A record that is gone refuses the request with the reason; afterwards nothing is offered any more."""
    number = reader.register(BY_ROWS)
    on_disk.disk.pop(next(iter(on_disk.disk)))
    refused = reader.restore(number, PROMPT)

    assert isinstance(refused, Failed)
    assert "damaged: the record is gone" in refused.message
    assert positions(reader.acquire(number, [*PROMPT, 7])) == []


def test_what_can_not_be_read_now_is_cut_with_the_reason(on_disk, reader):
    """Where restores have stopped, a verdict on what would be restored and converted says so."""
    number = reader.register(BY_ROWS)
    on_disk.do(DegradeDue("5 restores failed within 60 s"))
    answer = reader.acquire(number, [*PROMPT, 7])

    assert positions(answer) == []
    assert [cut.detail for cut in answer.cuts if cut.code is Code.DEGRADED]


def test_what_takes_longer_to_read_than_to_compute_is_not_converted(on_disk, reader):
    """The time of a restore counts for a conversion as it does for the layout's own boundaries."""
    on_disk.restore_micros = 1_000_000
    writer = on_disk.engine("measures")
    split, other = writer.register(SPLIT), [token + 5000 for token in PROMPT]
    writer.store(split, other)
    writer.offload(split, other)
    assert isinstance(writer.restore(split, other), Restored)
    number = reader.register(BY_ROWS)

    assert positions(reader.acquire(number, [*PROMPT, 7], recompute=10)) == [(END, False)]
    answer = reader.acquire(number, [*PROMPT, 7], recompute=1_000_000)
    assert positions(answer) == []
    assert Code.RESTORE_COST in {cut.code for cut in answer.cuts}


@pytest.mark.parametrize("ending", ["leave", "hang_up"])
def test_end_of_the_asking_engine_frees_everything(world, reader, ending):
    """An engine or connection that ends mid-way costs the conversion: its slots are free once the worker answered."""
    _, effect = held(world, reader)
    getattr(reader, ending)()
    assert world.state.units
    world.do(convert(world, effect))

    assert not world.state.units
    assert not any(cell.pins or cell.layout == 2 for cell in world.state.cells.values())


def test_damaged_source_is_told_once_and_published_never(world, reader):
    """A source that is not the committed bytes ends the unit; the waiting request is refused with the reason."""
    number, effect = held(world, reader)
    world.held = None
    world.do(Converted(effect.job, error="the object to be converted does not hold the committed bytes"))
    assert not world.state.units
    assert positions(reader.acquire(number, [*PROMPT, 7], restore=False)) == []

    class Broken(Workshop):
        def run(self, effect):
            if isinstance(effect, ConvertSlots):
                self.do(Converted(effect.job, error="damaged"))
            else:
                super().run(effect)

    world.__class__ = Broken
    refused = reader.restore(number, PROMPT)
    assert isinstance(refused, Failed)
    assert refused.message == "damaged"


def test_state_survives_a_snapshot_in_the_middle(world, reader):
    """A unit that is being converted is restored with its pins and its job from a snapshot, and ends as without."""
    from kvledgerd.snapshots.decode import decode_state
    from kvledgerd.snapshots.encode import encode_state

    _, effect = held(world, reader)
    copy = decode_state(encode_state(world.state), world.config)
    assert copy.digest() == world.state.digest()
    answer = convert(world, effect)
    world.state = copy
    world.do(answer)
    assert not copy.units
    assert not any(cell.pins for cell in copy.cells.values())


def test_restart_gives_a_conversion_up(world, reader):
    """A daemon that dies while it converts knows nothing of it afterwards, and what was stored is still there."""
    held(world, reader)
    world.restart()
    other = world.engine("again")

    assert not world.state.units
    assert positions(other.acquire(other.register(SPLIT), [*PROMPT, 7])) == [(END, True)]
    assert isinstance(other.restore(other.register(BY_ROWS), PROMPT), Restored)


def test_own_objects_are_not_brought_twice(world, reader):
    """What the asking layout keeps already stays; only the rest is converted."""
    number = reader.register(BY_ROWS)
    reader.store(number, PROMPT[:256])
    reader.restore(number, PROMPT)
    unit = world.events("unit_reserved.1")[-1]

    assert any(place == (0, 0) for place in map(tuple, unit.placements))
    assert (END, True) in positions(reader.acquire(number, [*PROMPT, 7]))


def test_strict_provenance_is_never_converted(world, reader):
    """A layout that joins no two runs is not served with what another layout's run made."""
    number = reader.register(replace(BY_ROWS, strict_provenance=True))

    assert positions(reader.acquire(number, [*PROMPT, 7])) == []


def test_conversion_that_finds_no_room_is_refused():
    """Sources never make room for what they become: where both do not fit, the request is refused and they stay."""
    small = Workshop(CoreConfig(memory_bytes=3 << 20, arena_bytes=1 << 18, disk_bytes=64 << 20))
    writer, count = small.engine("writer"), 0
    number = writer.register(SPLIT)
    leases = []
    while count < 40:
        prompt = [1000 * (count + 1) + token for token in PROMPT]
        if isinstance(writer.ask_reserve(number, prompt), Failed):
            break
        leases.append(writer.acquire(number, prompt))
        count += 1
    reader = small.engine("reader")
    asked = reader.register(BY_ROWS)
    assert positions(reader.acquire(asked, PROMPT)) == []
    assert isinstance(reader.restore(asked, PROMPT), Failed)


CONVERTIBLE = {
    "the same": SPLIT,
    "by rows": v4_layout(split=False),
    "other pages": v4_layout(csa_rows=32),
    "another stride": with_abi(SPLIT, "csa", strides=(37_440, 576)),
    "another alignment": with_group(SPLIT, "csa", alignment=128),
}
DIFFERENT = {
    "weights": v4_layout(weights_digest="w2"),
    "number of the abi": with_abi(SPLIT, "csa", number=2),
    "name of the abi": with_abi(SPLIT, "csa", name="other"),
    "unknown format": with_group(SPLIT, "indexer", layout_id="mine"),
    "other rows": with_group(SPLIT, "csa", layout_id="mla-v4.1-fp4.rows", page_bytes=64 * 584),
    "other heads": with_group(SPLIT, "window", layout_id="kv.hnd:4"),
    "pages of a window": with_group(SPLIT, "window", rows_per_page=32, page_bytes=32 * 256),
    "snapshot": with_group(SPLIT, "tail", page_bytes=8_192),
    "dtype": with_group(SPLIT, "csa", dtype="other"),
    "layers": with_group(SPLIT, "csa", layers=(0, 2)),
    "group less": replace(SPLIT, groups=SPLIT.groups[:3], abi={g.name: SPLIT.abi[g.name] for g in SPLIT.groups[:3]}),
}


@pytest.mark.parametrize("asked", CONVERTIBLE.values(), ids=list(CONVERTIBLE))
def test_places_convert(asked):
    """Layouts that differ in nothing but where bytes lie convert into each other."""
    assert conversion(SPLIT, asked) is not None
    assert conversion(asked, SPLIT) is not None


@pytest.mark.parametrize("asked", DIFFERENT.values(), ids=list(DIFFERENT))
def test_meanings_do_not_convert(asked):
    """Whatever else differs is a mismatch, however equal the sizes are."""
    assert conversion(SPLIT, asked) is None
    assert conversion(asked, SPLIT) is None


@pytest.mark.parametrize(
    ("group", "fields", "field"),
    [
        ("csa", {"page_bytes": 37_441}, "groups[0].page_bytes"),
        ("csa", {"row_bytes": 585}, "groups[0].row_bytes"),
        ("csa", {"row_bytes": 583}, "groups[0].row_bytes"),
        ("window", {"layout_id": "kv.hnd:3"}, "groups[2].row_bytes"),
    ],
)
def test_numbers_that_contradict_a_format_are_refused(group, fields, field):
    """A group that names a format has its sizes, or the layout is refused with the field."""
    with pytest.raises(LayoutError) as refused:
        check_layout(with_group(SPLIT, group, **fields))

    assert refused.value.field == field
    assert refused.value.remedy


def test_what_is_made_from_an_approximation_is_one(world):
    """A conversion keeps what is known of its source; an exact source is converted anew in its place."""
    split, by_rows = (replace(made, allow_approx=True) for made in (SPLIT, BY_ROWS))
    writer, reader = world.engine("rough"), world.engine("gentle")
    one, other = writer.register(split), reader.register(by_rows)
    writer.store(one, PROMPT, approx=True)
    assert not reader.acquire(other, [*PROMPT, 7]).offers
    wanted = reader.acquire(other, [*PROMPT, 7], approx=True)
    assert [(offer.exactness, offer.ready) for offer in wanted.offers] == [(Exactness.APPROX, False)]
    assert isinstance(reader.restore(other, PROMPT), Restored)
    assert not reader.acquire(other, [*PROMPT, 7]).offers
    made = reader.acquire(other, [*PROMPT, 7], approx=True)
    assert [(offer.exactness, offer.ready) for offer in made.offers] == [(Exactness.APPROX, True)]

    writer.store(one, PROMPT)
    assert positions(reader.acquire(other, [*PROMPT, 7])) == [(END, False)]
    assert isinstance(reader.restore(other, PROMPT), Restored)
    exact = reader.acquire(other, [*PROMPT, 7])
    assert [(offer.exactness, offer.ready) for offer in exact.offers] == [(Exactness.EXACT, True)]
