"""Field cases about identity: whose bytes these are, and what they mean."""

import itertools

import pytest
from msgspec.structs import replace

from kvledger.errors import LayoutError
from kvledger.hashing import ChainHasher, token_bytes
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.layout_rules import check_layout
from kvledger.verdict import Code, Layer
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Acquire, Boundary, Commit, Put, PutRange, Register, Reserve
from support.layouts import compressed, indexer, pick, recurrent, window
from support.world import ROOT_KEY, World, layout

PROMPT = list(range(600))
KEY = bytes(32)


def stored(what: Layout):
    """A user who stored 512 tokens under a layout."""
    user = World().engine()
    number = user.register(what)
    user.store(number, PROMPT, 512)
    return user, number


def identity_cuts(acquired):
    """The layer-2 cuts as (code, detail)."""
    return [(c.code, c.detail) for c in acquired.cuts if c.layer is Layer.IDENTITY]


IDENTITY = {
    "model": "other",
    "weights_digest": "w2",
    "revision": "b",
    "rope_digest": "yarn-8",
    "config_digest": "c2",
    "adapter_digest": "lora-b",
    "dtype": "bfloat16",
    "quantisation": "fp8",
    "scale_provenance": "calibrated",
    "ranks": "tp2pp1",
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("field", IDENTITY)
def test_v28_v29_l15_another_identity_is_a_named_miss(field, restarted):
    """One identity field differs: nothing is usable, the cut names the field, and the old layout still hits."""
    what = pick("CXST")
    user, _ = stored(what)
    if restarted:
        user.world.restart()
        user = user.world.engine()
    other = user.register(replace(what, **{field: IDENTITY[field]}))
    missed = user.acquire(other, PROMPT)
    assert (missed.usable_tokens, missed.lease) == (0, 0)
    (detail,) = {detail for code, detail in identity_cuts(missed) if code is Code.IDENTITY_MISMATCH}
    assert detail.startswith(f"{field}: stored ")
    assert repr(IDENTITY[field]) in detail
    assert user.acquire(user.register(what), PROMPT).usable_tokens == 512


ABI = {
    "name": "flash",
    "number": 2,
    "layout": "LBHNC",
    "strides": (64, 16, 4),
    "page_bytes": 1024,
    "alignment": 128,
}


@pytest.mark.parametrize("field", ABI)
@pytest.mark.parametrize("name", ["C", "X", "S", "T"])
def test_v30_p21_another_kernel_layout_of_equal_size_is_refused(name, field):
    """Equal sizes prove nothing: one field of one group's kernel ABI differs, and it is named."""
    what = pick("CXST")
    user, _ = stored(what)
    abi = what.abi | {name: replace(what.abi[name], **{field: ABI[field]})}
    missed = user.acquire(user.register(replace(what, abi=abi)), PROMPT)
    assert missed.usable_tokens == 0
    assert {code for code, _ in identity_cuts(missed)} == {Code.ABI_MISMATCH}
    assert f"abi.{name}.{field}: " in identity_cuts(missed)[0][1]


def test_p21_a_permutation_of_strides_is_another_layout():
    """Two planes before blocks or blocks before planes have equal sizes and share nothing."""
    what = layout(compressed(), abi={"C": KernelABI(name="pair", layout="2NBHD", strides=(512, 64, 16, 4))})
    user, _ = stored(what)
    turned = replace(what, abi={"C": KernelABI(name="pair", layout="N2BHD", strides=(64, 512, 16, 4))})
    missed = user.acquire(user.register(turned), PROMPT)
    assert (missed.usable_tokens, identity_cuts(missed)[0][0]) == (0, Code.ABI_MISMATCH)


@pytest.mark.parametrize("ranks", [2, 4])
def test_v30_the_shards_of_more_ranks_are_other_objects(ranks):
    """The same groups over more ranks are another layout, though each file would have the same size."""
    user, _ = stored(layout(compressed(shards=1, row_bytes=64, page_bytes=4096)))
    split = layout(compressed(shards=ranks, row_bytes=64 // ranks, page_bytes=4096), ranks=f"tp{ranks}pp1")
    assert user.acquire(user.register(split), PROMPT).usable_tokens == 0


SOURCES = ["lora", "salt", "multimodal"]
VALUES = ["", "x", "xx", "a=b", "lora", b"", b"x", b"\0x", "salt"]


def test_v32_extra_keys_are_injective():
    """Every set of (source, value) pairs has a hash of its own: a name used as a salt collides with nothing."""
    seen = {}
    for size in range(3):
        for sources in itertools.combinations(SOURCES, size):
            for values in itertools.product(VALUES, repeat=size):
                extra = dict(zip(sources, values, strict=True))
                hashes = ChainHasher(KEY, 4, extra).blocks(token_bytes(range(8)))
                assert seen.setdefault(hashes, extra) == extra
    assert len(seen) == 1 + 3 * len(VALUES) + 3 * len(VALUES) ** 2


def salted(user, number, extra):
    """A look-up of the prompt under extra keys, as a request."""
    hasher = ChainHasher(ROOT_KEY, 256, extra)
    return Acquire(number, len(PROMPT), hasher.blocks(token_bytes(PROMPT)))


@pytest.mark.hostile("ID04")
@pytest.mark.parametrize("one", [{"salt": "s1"}, {"lora": "a"}, {"multimodal": b"\1" * 32}, {}])
@pytest.mark.parametrize("other", [{"salt": "s2"}, {"lora": "b"}, {"salt": "a"}, {"multimodal": b"\1" * 31 + b"\2"}])
def test_v33_l15_other_extra_keys_are_a_plain_miss(one, other):
    """What is stored under one salt, adapter or image is, under another, answered as what was never stored."""
    user = World().engine()
    number = user.register(pick("CX"))
    request = salted(user, number, one)
    reserved = user.ok(Reserve(number, Boundary(request.hashes)))
    user.fill(reserved)
    user.ok(Commit(reserved.unit))
    assert user.ok(request).usable_tokens == 512
    never = user.ok(salted(user, number, {"salt": "never stored"}))
    assert user.ok(salted(user, number, other)) == never
    assert never.usable_tokens == 0


def test_v33_another_tenant_sees_what_an_empty_cache_shows():
    """Even with the other tenant's own hashes, a tenant is answered as if nothing were stored."""
    world = World()
    rich, poor = world.engine("rich", "rich"), world.engine("poor", "poor")
    what = pick("CXST")
    number = rich.register(what)
    rich.store(number, PROMPT, 512)
    mine = poor.register(what)
    empty = World().engine("poor", "poor")
    alone = empty.register(what)
    answer = poor.acquire(mine, PROMPT)
    assert answer == empty.acquire(alone, PROMPT)
    assert answer.usable_tokens == 0


@pytest.mark.hostile("BY01")
@pytest.mark.parametrize("name", ["C", "X", "S", "T"])
@pytest.mark.parametrize("layers", [2, 21, 78])
def test_v37_l10_fewer_layers_than_declared_are_incomplete(name, layers):
    """An object that lacks one layer's bytes keeps its unit from being committed, whichever group it belongs to."""
    parts = [replace(g, layers=tuple(range(layers))) for g in pick("CXST").groups]
    user = World().engine()
    number = user.register(layout(*parts))
    reserved = user.reserve(number, PROMPT, 256)
    user.fill(reserved, skip=(name,))
    unit = user.world.state.units[reserved.unit]
    for index in unit.missing():
        item = unit.objects[index]
        if parts[item.group].name == name:
            short = item.length // layers * (layers - 1)
            user.world.rings[user.caller.connection, index] = bytes(short)
            user.ok(Put(reserved.unit, [PutRange(parts[item.group].kind, index, 0, index, short)]))
    refused = user.ask(Commit(reserved.unit))
    assert (refused.code, f"first {name} (" in refused.message) == ("commit_refused", True)
    assert user.acquire(number, PROMPT).usable_tokens == 0


def test_v37_a_unit_without_its_indexer_is_never_usable():
    """Rows of 78 layers without the 21 layers of keys are refused, and the prompt stays a miss."""
    groups = (compressed(layers=tuple(range(78))), indexer(layers=tuple(range(21))))
    user = World().engine()
    number = user.register(layout(*groups))
    reserved = user.reserve(number, PROMPT, 512)
    user.fill(reserved, skip=("X",))
    refused = user.ask(Commit(reserved.unit))
    assert (refused.code, "X (INDEXER_STATE)" in refused.message) == ("commit_refused", True)
    assert user.acquire(number, PROMPT).usable_tokens == 0


@pytest.mark.parametrize("order", ["CX", "XC", "CXS", "SXC"])
@pytest.mark.parametrize("block", [0, 1])
def test_p18_rows_without_their_keys(order, block):
    """Rows present and keys absent is a miss of the indexer, never a partial hit behind it."""
    user, number = stored(pick(order))
    user.evict(number, PROMPT, 512, "X", block=block)
    acquired = user.acquire(number, PROMPT)
    cut = next(c for c in acquired.cuts if c.end == 512)
    assert acquired.usable_tokens == (0 if "S" in order else 256 * block)
    assert (cut.layer, cut.kind, cut.code) == (Layer.STATE, Kind.INDEXER_STATE, Code.INDEXER_MISSING)


def test_p18_keys_of_another_commit_are_never_joined_with_rows():
    """Storing again what lost its keys brings rows and keys together: both are of one commit afterwards."""
    user, number = stored(pick("CX"))
    user.evict(number, PROMPT, 512, "X", block=1)
    committed = user.store(number, PROMPT, 512, seed=1)
    assert (committed.stored, committed.duplicates) == (2, 0)
    acquired = user.acquire(number, PROMPT)
    assert acquired.usable_tokens == 512
    read = user.read(acquired)
    assert read[0, 0, 256].startswith(b"C/0/256/1;")
    assert read[1, 0, 256].startswith(b"X/0/256/1;")
    assert read[0, 0, 0].startswith(b"C/0/0/0;")


@pytest.mark.parametrize(("rows", "keys"), [(4, 64), (64, 4), (4, 128), (1, 256)])
def test_p19_keys_coarser_or_finer_than_their_rows(rows, keys):
    """An indexer that pools more tokens than its rows do has objects of its own size, and both come back whole."""
    user, number = stored(layout(compressed(per_row=rows), indexer(per_row=keys), window()))
    acquired = user.acquire(number, PROMPT)
    assert acquired.usable_tokens == 512
    read = user.read(acquired)
    assert [read[i, 0, 256].partition(b"/")[0] for i in (0, 1)] == [b"C", b"X"]
    assert [len(read[i, 0, 256]) for i in (0, 1)] == [max(256 // per * 16, 64) for per in (rows, keys)]


@pytest.mark.parametrize(("rows", "keys"), [(4, 64), (64, 4), (16, 32)])
@pytest.mark.parametrize("end", [320, 288, 576, 260])
def test_p19_a_residue_may_end_rows_of_one_and_not_of_the_other(rows, keys, end):
    """A residue may hold whole rows of only one of two coupled groups, and still be a boundary."""
    tails = recurrent("M", coupled_to="C")
    user = World().engine()
    number = user.register(layout(compressed(per_row=rows), indexer(per_row=keys), tails))
    user.store(number, PROMPT, end)
    assert user.acquire(number, PROMPT).offers[0].position == end


@pytest.mark.parametrize("lacking", ["C", "X", "S", "T"])
def test_p19_a_layout_short_of_its_preset_fails_at_registration(lacking):
    """A layout that names a preset and lacks one of its groups is refused, and the refusal names the field."""
    parts = [g for g in pick("CXST").groups if lacking not in {g.name, g.coupled_to}]
    user = World().engine()
    refused = user.ask(Register(layout(*parts, preset="deepseek-v4-flash")))
    assert isinstance(refused, Failed)
    assert refused.code == "layout"
    assert refused.field


@pytest.mark.parametrize("size", [0, 1, 63])
def test_l10_pages_that_can_not_hold_their_rows_are_refused(size):
    """A page smaller than the rows it is said to hold is refused where the layout is registered."""
    part = replace(compressed(), row_bytes=1, page_bytes=max(size, 1))
    with pytest.raises(LayoutError) as refused:
        check_layout(layout(part))
    assert refused.value.field == "groups[0].page_bytes"


@pytest.mark.parametrize("extra", [1, 64, 4096])
def test_l10_more_bytes_than_declared_are_refused(extra):
    """Handing in more bytes than the layout declares is refused and nothing is truncated."""
    user = World().engine()
    number = user.register(pick("C"))
    reserved = user.reserve(number, PROMPT, 256)
    length = user.world.state.units[reserved.unit].objects[0].length
    refused = user.ask(Put(reserved.unit, [PutRange(Kind.COMPRESSED_KV, 0, 0, 0, length + extra)]))
    assert (refused.code, refused.field) == ("caller", "ranges[0].length")
    assert user.ask(Commit(reserved.unit)).code == "commit_refused"


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("form", list(Form))
def test_p19_a_kind_has_only_the_forms_that_can_hold_it(kind, form):
    """Of the fifteen pairs of kind and form only six can be declared."""
    allowed = {
        (Kind.COMPRESSED_KV, Form.ROWS),
        (Kind.INDEXER_STATE, Form.ROWS),
        (Kind.SWA_WINDOW, Form.PAGED_WINDOW),
        (Kind.SWA_WINDOW, Form.SNAPSHOT),
        (Kind.UNCOMPRESSED_TAIL, Form.PAGED_WINDOW),
        (Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT),
    }
    part = replace(window("S", 64, 128), kind=kind, form=form, coupled_to="C" if kind is Kind.INDEXER_STATE else "")
    what = layout(compressed(), part)
    if (kind, form) in allowed:
        check_layout(what)
    else:
        with pytest.raises(LayoutError) as refused:
            check_layout(what)
        assert refused.value.field in {"groups[1].kind", "groups[1].form"}


GROUP = {
    "layers": (0, 1),
    "owner_layers": (1,),
    "shards": 2,
    "first_rank": 1,
    "replicas": 2,
    "cacheable": False,
    "row_bytes": 8,
    "page_bytes": 8192,
    "window": 256,
    "halo_rows": 3,
    "speculative_units": 1,
    "alignment": 128,
    "layout_id": "interleaved",
    "exact_replay_tokens": 256,
    "approx_replay_tokens": 128,
    "dtype": "bfloat16",
}
NAMES_OF_GROUPS = {"name", "kind", "form", "coupled_to", "tokens_per_row", "rows_per_page"}
"""Fields of a group that can not change alone, or change what a block is; those that stand beside them do it here."""


@pytest.mark.hostile("ID06")
@pytest.mark.parametrize("name", ["C", "S"])
@pytest.mark.parametrize("field", GROUP)
def test_v30_l10_one_name_and_another_shape_is_a_named_miss(name, field):
    """Two layouts with one name whose groups differ in a single field share nothing, and the field is named."""
    user, _ = stored(layout(compressed(layers=(0, 1, 2)), window(layers=(0, 1, 2))))
    parts = [compressed(layers=(0, 1, 2)), window(layers=(0, 1, 2))]
    odd = [replace(part, **{field: GROUP[field]}) if part.name == name else part for part in parts]
    missed = user.acquire(user.register(layout(*odd)), PROMPT)
    assert missed.usable_tokens == 0
    assert {code for code, _ in identity_cuts(missed)} == {Code.ABI_MISMATCH}
    assert f"groups.{name}.{field}: stored " in identity_cuts(missed)[0][1]


@pytest.mark.parametrize(("asked", "says"), [("SC", "groups: in another order"), ("CST", "abi.T: not stored")])
def test_v30_groups_in_another_order_or_number_are_named(asked, says):
    """The order of groups is part of a layout, and so is their number: both are told as what they are."""
    user, _ = stored(pick("CS"))
    missed = user.acquire(user.register(pick(asked)), PROMPT)
    assert missed.usable_tokens == 0
    assert says in identity_cuts(missed)[0][1]


def test_every_field_of_a_layout_is_tried_or_is_part_of_the_key():
    """No field of layout, group or kernel ABI is left out above, so that a new one can not be forgotten."""
    key = {"tokenizer_digest", "hash_algorithm", "block_tokens"}
    about_use = {"preset", "checkpoint_tokens", "allow_approx", "strict_provenance"}
    assert set(Layout.__struct_fields__) == {*IDENTITY, *key, *about_use, "abi", "groups"}
    assert set(GroupSpec.__struct_fields__) == {*GROUP, *NAMES_OF_GROUPS}
    assert set(KernelABI.__struct_fields__) == set(ABI)


@pytest.mark.hostile("ID07")
@pytest.mark.parametrize("field", ["tokenizer_digest", "hash_algorithm", "block_tokens"])
def test_l45_hashes_of_another_algorithm_or_tokenizer_find_nothing(field):
    """The same hashes under another name of the chain, another tokenizer or block are those of another index."""
    user, _ = stored(pick("CM"))
    other = replace(pick("CM"), **{field: 512 if field == "block_tokens" else "other"})
    number = user.register(other)
    missed = user.ok(Acquire(number, 1200, user.boundary(1, PROMPT).hashes))
    assert (missed.usable_tokens, missed.hash_tokens) == (0, 0)
