"""What a boundary consists of, held against a page-by-page count."""

import pytest

from support.layouts import compressed, indexer, tail, window
from support.world import World, layout

BLOCK = 64
TOKENS = list(range(512))


def needed(geometry, position):
    """Return (block, slot) of everything that a resume needs from whole blocks, counted page by page."""
    found = set()
    for number, slot in enumerate(geometry.block_slots):
        pages = geometry.window_pages(slot.group, position) if slot.group in geometry.windows else None
        for block in range(position // BLOCK):
            if pages is None or block * geometry.pages(slot.group) + slot.page in pages:
                found.add((block, number))
    return found


@pytest.mark.parametrize("span", [1, 2, 16, 17, 63, 64, 65, 127, 128, 129, 400, 4096])
@pytest.mark.parametrize("position", [64, 128, 144, 256, 448, 464])
def test_a_boundary_is_offloaded_with_exactly_what_it_needs(span, position):
    """Offload takes every page that touches the window and none before it, wherever the window begins."""
    user = World().engine()
    groups = (compressed(block=BLOCK), indexer(block=BLOCK), window(page=16, span=span), tail(page=4, span=8))
    number = user.register(layout(*groups, block_tokens=BLOCK))
    user.store(number, TOKENS, position, all_pages=True)
    geometry = user.world.state.layouts[number].geometry

    written = user.offload(number, TOKENS, position, drop=False)

    own = sum(geometry.boundary_need(g, position).bit_count() for g in range(len(groups)))
    assert written.objects == len(needed(geometry, position)) + own
