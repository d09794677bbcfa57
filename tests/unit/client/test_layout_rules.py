"""Layouts that contradict themselves: each is refused by the field that is wrong, with what would be right."""

import msgspec
import pytest

from kvledger.errors import LayoutError
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.layout_rules import check_layout, row_unit_tokens
from unit.client.fake import BLOCK, layout


def changed(name, **fields):
    """Return the example layout with one group changed."""
    whole = layout()
    groups = tuple(
        GroupSpec(**{f: getattr(g, f) for f in g.__struct_fields__} | (fields if g.name == name else {}))
        for g in whole.groups
    )
    return layout(groups=groups)


def indexed(**fields):
    """Return the example layout with an indexer, whose fields may be changed."""
    rows = layout().group("full")
    same = {f: getattr(rows, f) for f in rows.__struct_fields__}
    index = GroupSpec(**same | {"name": "idx", "kind": Kind.INDEXER_STATE, "coupled_to": "full"} | fields)
    return layout(groups=(rows, index), abi={"full": KernelABI(name="test"), "idx": KernelABI(name="test")})


REFUSED = {
    "two groups of one name": (lambda: layout(groups=layout().groups[:1] * 2), "groups: two groups have one name"),
    "a group without ABI": (lambda: layout(abi={"full": KernelABI(name="t")}), r"abi: .*\['swa'\]"),
    "an ABI without group": (lambda: layout(abi=layout().abi | {"x": KernelABI(name="t")}), r"abi: .*\['x'\]"),
    "a kind of the daemon": (lambda: changed("full", kind=Kind.DISK_PREFIX), "kind: DISK_PREFIX is made by the daemon"),
    "rows as a snapshot": (lambda: changed("full", form=Form.SNAPSHOT), r"form: COMPRESSED_KV .*\(use rows\)"),
    "a window as rows": (lambda: changed("swa", form=Form.ROWS), "form: SWA_WINDOW .* paged_window or snapshot"),
    "paged without window": (lambda: changed("swa", form=Form.PAGED_WINDOW, window=0), "window: a paged window needs"),
    "halo beyond its window": (
        lambda: changed("swa", form=Form.PAGED_WINDOW, window=4, halo_rows=4, row_bytes=256, rows_per_page=4),
        "window: a window of 4 tokens can not hold a halo of 4",
    ),
    "rows without size": (lambda: changed("full", row_bytes=0), "row_bytes: rows have no size"),
    "page too small": (lambda: changed("full", page_bytes=4095), "page_bytes: 4095 bytes can not hold 4096"),
    "too many ranks": (lambda: changed("full", shards=512, replicas=2, first_rank=1), "shards: 1025 ranks are"),
    "odd alignment": (lambda: changed("full", alignment=96), "alignment: 96 is no power of two"),
    "page off its alignment": (lambda: changed("full", alignment=576), "page_bytes: 4096 is no multiple of 576"),
    "huge alignment": (lambda: changed("full", alignment=8192), "alignment: 8192 is more than a page"),
    "no layers": (lambda: changed("full", layers=()), "layers: layers are missing"),
    "a layer twice": (lambda: changed("full", layers=(1, 1)), "layers: layers are missing or named twice"),
    "a foreign owner": (lambda: changed("full", owner_layers=(5,)), "owner_layers: an owner is no layer"),
    "uncoupled indexer": (lambda: indexed(coupled_to=""), "coupled_to: an indexer needs the rows"),
    "indexer of nothing": (lambda: indexed(coupled_to="nope"), "coupled_to: 'nope' is no compressed group"),
    "indexer of itself": (lambda: indexed(coupled_to="idx"), "coupled_to: 'idx' is no compressed group"),
    "other shards": (lambda: indexed(shards=2), "coupled_to: the coupled groups differ in cacheable, shards or ranks"),
    "block between pages": (
        lambda: layout(block_tokens=BLOCK + 1),
        "block_tokens: 17 is no multiple .* multiple of 16",
    ),
    "huge block": (lambda: changed("full", page_bytes=1 << 31, layers=(0, 1)), "block_tokens: .* passes 2 GiB"),
    "too many objects": (
        lambda: layout(
            block_tokens=1 << 16,
            groups=(changed("swa", form=Form.PAGED_WINDOW, row_bytes=1).groups[1],),
            abi={"swa": KernelABI(name="t")},
        ),
        "block_tokens: a block would have 65536 objects",
    ),
    "nothing cacheable": (
        lambda: layout(groups=(changed("full", cacheable=False).groups[0],), abi={"full": KernelABI(name="t")}),
        "groups: no group is cacheable",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    """A layout that breaks a rule is refused by field, message and remedy."""
    make, why = REFUSED[name]
    with pytest.raises(LayoutError, match=why) as caught:
        check_layout(make())
    assert caught.value.remedy


def test_right_layouts_pass():
    """The examples pass, 576 as the one odd alignment included."""
    for right in (layout(), indexed(), changed("full", alignment=576, page_bytes=8 * 576)):
        check_layout(right)


def test_unit_of_the_rows():
    """The block of a layout is a multiple of what its groups of rows store as a unit."""
    assert row_unit_tokens(layout()) == BLOCK
    assert row_unit_tokens(indexed(tokens_per_row=4, rows_per_page=6, page_bytes=4096)) == 48


@pytest.mark.parametrize(
    "field", ["model", "weights_digest", "rope_digest", "tokenizer_digest", "dtype", "quantisation", "hash_algorithm"]
)
def test_digest_names_every_field(field):
    """Two layouts that differ in one field have different digests, and equal ones have the same."""
    assert layout(**{field: "other"}).digest != layout().digest == layout().digest


def test_digest_survives_the_wire():
    """A layout that was sent has the digest that it had, though maps have no order."""
    turned = layout(abi=dict(reversed(layout().abi.items())))
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(turned), type=Layout)
    assert sent.digest == layout().digest


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", ""), ("model", "x" * 257), ("weights_digest", "a b"), ("block_tokens", 0), ("block_tokens", 1 << 17)],
)
def test_bounds_hold_on_the_wire(field, value):
    """A layout out of its bounds is not even decoded."""
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert(msgspec.to_builtins(layout(**{field: value})), Layout)


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_every_rank_of_a_group_holds_one_shard(first, shards, replicas):
    """Each shard is brought by the first of the ranks that hold it, and no rank outside of them holds any."""
    spec = changed("full", first_rank=first, shards=shards, replicas=replicas).group("full")
    held = [spec.shard_at(rank) for rank in range(first + shards * replicas + 3)]
    assert held == [None] * first + [s for s in range(shards) for _ in range(replicas)] + [None] * 3
    assert [held.index(shard) for shard in range(shards)] == [spec.rank_of(shard) for shard in range(shards)]
