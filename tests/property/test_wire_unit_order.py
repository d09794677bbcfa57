"""The order of a unit's objects, worked out a second time from the words of docs/protocol.md."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.geometry import BOUNDARY, Geometry
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.layout_rules import check_layout

ROWS, PAGED, SNAPSHOT = Form.ROWS, Form.PAGED_WINDOW, Form.SNAPSHOT


def spec(name, kind, form, **fields):
    """Return a group with sizes that its rows fit in."""
    rows = fields.get("rows_per_page", 1)
    sizes = {"row_bytes": 8, "page_bytes": 8 * rows + 16} if form is not SNAPSHOT else {"page_bytes": 48}
    return GroupSpec(name=name, kind=kind, form=form, **{"layers": (0, 2)} | sizes | fields)


@st.composite
def layouts(draw):
    """Draw a layout that the rules accept, with one to six groups of all forms."""
    shards = draw(st.integers(1, 2))
    rows = {"shards": shards, "tokens_per_row": draw(st.sampled_from([1, 2, 4]))}
    groups = [spec("kv", Kind.COMPRESSED_KV, ROWS, rows_per_page=draw(st.sampled_from([1, 2])), **rows)]
    if draw(st.booleans()):
        groups.append(spec("index", Kind.INDEXER_STATE, ROWS, coupled_to="kv", **rows))
    if draw(st.booleans()):
        window = {"window": draw(st.integers(1, 20)), "speculative_units": draw(st.integers(0, 1))}
        groups.append(spec("paged", Kind.SWA_WINDOW, PAGED, rows_per_page=draw(st.sampled_from([2, 4])), **window))
    if draw(st.booleans()):
        groups.append(spec("swa", Kind.SWA_WINDOW, SNAPSHOT, window=9, shards=draw(st.integers(1, 2))))
    if draw(st.booleans()):
        groups.append(spec("tail", Kind.UNCOMPRESSED_TAIL, SNAPSHOT, coupled_to="kv"))
    if draw(st.booleans()):
        groups.append(spec("halo", Kind.UNCOMPRESSED_TAIL, SNAPSHOT, coupled_to="kv", halo_rows=4))
    if draw(st.booleans()):
        groups.append(spec("own", Kind.SWA_WINDOW, SNAPSHOT, cacheable=False))
    groups = draw(st.permutations(groups))
    unit = math.lcm(*(group.page_tokens for group in groups if group.form is not SNAPSHOT))
    layout = Layout(
        model="drawn",
        abi={group.name: KernelABI(name="test") for group in groups},
        block_tokens=unit * draw(st.integers(1, 2)),
        groups=tuple(groups),
    )
    check_layout(layout)
    return layout


class Unit:
    """One unit as the page defines it; each method yields (block, group, shard, first token, tokens, bytes)."""

    def __init__(self, layout, first_block, end, *, boundary, all_pages):
        self.layout, self.size = layout, layout.block_tokens
        self.first_block, self.end = first_block, end
        self.boundary, self.all_pages = boundary, all_pages
        self.residue = end % self.size

    def groups(self, form):
        """Yield the groups of a form, once for each shard."""
        for index, group in enumerate(self.layout.groups):
            if group.cacheable and group.form is form:
                yield from ((index, group, shard) for shard in range(group.shards))

    def needs(self, group, page):
        """Tell whether a resume at the boundary needs a page: it touches [end - (window - 1) - ..., end)."""
        step = group.page_tokens
        start = max(0, self.end - (group.window - 1) - group.speculative_units * step)
        return self.boundary and start < self.end and page * step < self.end and (page + 1) * step > start

    def rows(self):
        """Point 1."""
        for block in range(self.first_block, self.end // self.size):
            for index, group, shard in self.groups(ROWS):
                yield block, index, shard, block * self.size, self.size, length(group, self.size)

    def pages(self):
        """Point 2."""
        for block in range(self.end // self.size):
            for index, group, shard in self.groups(PAGED):
                step, count = group.page_tokens, self.size // group.page_tokens
                for page in range(block * count, (block + 1) * count):
                    if self.needs(group, page) or (self.all_pages and block >= self.first_block):
                        yield block, index, shard, page * step, step, length(group, step)

    def at_boundary(self):
        """Point 3."""
        start = self.end - self.residue
        for index, group, shard in self.groups(ROWS):
            tokens = self.residue // group.tokens_per_row * group.tokens_per_row
            if tokens:
                yield BOUNDARY, index, shard, start, tokens, length(group, tokens)
        for index, group, shard in self.groups(PAGED):
            step = group.page_tokens
            for page in range(start // step, math.ceil(self.end / step)):
                if self.needs(group, page):
                    yield BOUNDARY, index, shard, page * step, step, length(group, step)
        for index, group, shard in self.groups(SNAPSHOT):
            if not self.is_empty_tail(group):
                yield BOUNDARY, index, shard, self.end, 0, length(group, 0)

    def is_empty_tail(self, group):
        """Tell whether a snapshot is a tail without halo after a whole row of its partner."""
        if group.kind is not Kind.UNCOMPRESSED_TAIL or not group.coupled_to or group.halo_rows:
            return False
        return self.end % self.layout.group(group.coupled_to).tokens_per_row == 0


def length(group, tokens):
    """Return the bytes of an object."""
    pages = math.ceil(tokens // group.tokens_per_row / group.rows_per_page) if group.form is ROWS else 1
    return len(group.layers) * pages * group.page_bytes


@given(layouts(), st.data())
@settings(max_examples=400, deadline=None)
def test_order_is_what_the_page_says(layout, data):
    """Of any unit the number, order, positions and sizes of objects are those that docs/protocol.md defines."""
    blocks = data.draw(st.integers(0, 4))
    boundary, all_pages = data.draw(st.booleans()), data.draw(st.booleans())
    end = blocks * layout.block_tokens + (data.draw(st.integers(0, layout.block_tokens - 1)) if boundary else 0)
    first = data.draw(st.integers(0, blocks))
    geometry = Geometry(layout)
    objects = geometry.unit_objects(first, end, boundary=boundary, all_pages=all_pages)
    got = [(o.block, o.group, o.shard, o.first_token, o.tokens, o.length) for o in objects]
    unit = Unit(layout, first, end, boundary=boundary, all_pages=all_pages)
    assert got == [*unit.rows(), *unit.pages(), *(unit.at_boundary() if boundary else ())]
    assert geometry.count_unit_objects(first, end, boundary=boundary, all_pages=all_pages) == len(got)
