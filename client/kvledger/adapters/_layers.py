"""The layer classes of `transformers.DynamicCache` that kvledger knows: what they keep and how they are brought back.

Looked up by their full name and never by inheritance: a subclass may keep more than its parent, and what is not known
to the last attribute is refused, since a state restored in part gives wrong tokens without an error. Read from
transformers 5.24, `cache_utils.py` and `models/deepseek_v4/modeling_deepseek_v4.py`.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kvledger.adapters._facets import Facet, Part, Span, part_of
from kvledger.errors import LayoutError
from kvledger.kinds import Kind

__all__ = ["KNOWN_CLASSES", "describe", "revive"]


class _Known(NamedTuple):
    """How a layer class is taken apart and put together again."""

    describe: Callable[[Any], Iterator[Facet]]
    revive: Callable[[Any, int], None]


def describe(layer: Any) -> list[Facet]:
    """Return the facets of a layer that a probing forward has filled.

    Raises:
        LayoutError: the class is not known, so nobody can say whether its attributes are all of its state.
    """
    return [facet for facet in _known(layer).describe(layer) if facet.parts]


def revive(layer: Any, position: int) -> None:
    """Set what a layer counts besides its tensors, as if it had just seen `position`; all its parts are written."""
    _known(layer).revive(layer, position)


def _known(layer: Any) -> _Known:
    name = f"{type(layer).__module__}.{type(layer).__qualname__}"
    if name not in _CLASSES:
        raise LayoutError(
            f"cache layer class {name} is not known",
            field="model",
            remedy="use a model whose cache layers are known, or add the class to kvledger.adapters._layers",
        )
    return _CLASSES[name]


def _parts(*parts: Part | None) -> tuple[Part, ...]:
    return tuple(part for part in parts if part is not None)


def _keys_values(layer: Any) -> tuple[Part, ...]:
    return _parts(part_of(layer, "keys", axis=2), part_of(layer, "values", axis=2))


def _nothing(_layer: Any) -> Iterator[Facet]:
    yield from ()


def _full(layer: Any) -> Iterator[Facet]:
    yield Facet("full", Kind.COMPRESSED_KV, Span.ROWS, _keys_values(layer))


def _sliding(layer: Any) -> Iterator[Facet]:
    yield Facet("swa", Kind.SWA_WINDOW, Span.WINDOW, _keys_values(layer), window=layer.sliding_window)


def _indexed(layer: Any) -> Iterator[Facet]:
    yield from _full(layer)
    # Positions are kept by some models only; they stand [dimensions, batch, tokens]
    parts = _parts(part_of(layer, "indexer_keys", axis=1), part_of(layer, "indexer_position_ids", axis=2))
    yield Facet("indexer", Kind.INDEXER_STATE, Span.ROWS, parts, coupled="full")


def _linear(layer: Any) -> Iterator[Facet]:
    numbers = range(layer.number_of_states)
    conv = (part_of(layer, "conv_states", i) for i in numbers)
    recurrent = (part_of(layer, "recurrent_states", i) for i in numbers)
    yield Facet("recurrent", Kind.UNCOMPRESSED_TAIL, Span.FIXED, _parts(*conv, *recurrent))


def _linear_full(layer: Any) -> Iterator[Facet]:
    yield from _full(layer)
    yield from _linear(layer)


def _linear_sliding(layer: Any) -> Iterator[Facet]:
    yield from _sliding(layer)
    yield from _linear(layer)


def _hca(layer: Any) -> Iterator[Facet]:
    yield from _compressed(layer, "hca")


def _csa(layer: Any) -> Iterator[Facet]:
    yield from _compressed(layer, "csa")
    rate = layer.compress_rate
    keys = _named_parts(layer, "indexer", "compressed_kv")
    yield Facet("csa_indexer", Kind.INDEXER_STATE, Span.ROWS, keys, tokens_per_row=rate, coupled="csa")
    halo = tuple(part for name in layer.overlap_kv for part in _named_parts(layer, name, "overlap_kv", "overlap_gate"))
    yield Facet("csa_halo", Kind.UNCOMPRESSED_TAIL, Span.HALO, halo, tokens_per_row=rate, coupled="csa")


def _compressed(layer: Any, role: str) -> Iterator[Facet]:
    rate = layer.compress_rate
    # One tensor is read as keys and as values, so it is stored once
    window = _parts(part_of(layer, "keys", axis=2))
    yield Facet("swa_shared", Kind.SWA_WINDOW, Span.WINDOW, window, window=layer.sliding_window)
    rows = _named_parts(layer, "compressor", "compressed_kv")
    yield Facet(role, Kind.COMPRESSED_KV, Span.ROWS, rows, tokens_per_row=rate)
    tail = tuple(part for name in layer.buffer_kv for part in _named_parts(layer, name, "buffer_kv", "buffer_gate"))
    yield Facet(f"{role}_tail", Kind.UNCOMPRESSED_TAIL, Span.TAIL, tail, tokens_per_row=rate, coupled=role)


def _named_parts(layer: Any, name: str, *attributes: str) -> tuple[Part, ...]:
    return _parts(*(part_of(layer, attribute, name, axis=1) for attribute in attributes))


def _revive_nothing(_layer: Any, _position: int) -> None:
    """A layer without state of its own has nothing to set."""


def _revive_full(layer: Any, _position: int) -> None:
    # The layer's own initialisation sets device and flags; it also drops keys and values, so they are put back
    keys, values = layer.keys, layer.values
    if keys is not None:
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values


def _revive_sliding(layer: Any, position: int) -> None:
    _revive_full(layer, position)
    layer.cumulative_length = position


def _revive_indexed(layer: Any, position: int) -> None:
    _revive_full(layer, position)
    keys = layer.indexer_keys
    if keys is not None:
        layer.lazy_initialization_indexer(keys)
        layer.indexer_keys = keys


def _revive_linear(layer: Any, _position: int) -> None:
    for i in range(layer.number_of_states):
        conv, recurrent = layer.conv_states[i], layer.recurrent_states[i]
        # These states are updated in place at an address that graphs may have captured, so the layer allocates them
        if conv is not None:
            layer.lazy_initialization(conv_states=conv, state_idx=i)
            layer.conv_states[i].copy_(conv)
            layer.has_previous_state[i] = True
        if recurrent is not None:
            layer.lazy_initialization(recurrent_states=recurrent, state_idx=i)
            layer.recurrent_states[i].copy_(recurrent)


def _revive_linear_full(layer: Any, position: int) -> None:
    # The recurrent part first: it notes its element type only while the layer has no device
    _revive_linear(layer, position)
    _revive_full(layer, position)


def _revive_linear_sliding(layer: Any, position: int) -> None:
    _revive_linear(layer, position)
    _revive_sliding(layer, position)


def _revive_v4(layer: Any, position: int) -> None:
    # V4 reads one tensor as keys and as values, and its update keeps them one object
    layer.values = layer.keys
    _revive_sliding(layer, position)
    for name in layer.entry_count:
        layer.entry_count[name] = position // layer.compress_rate


_CACHE = "transformers.cache_utils"
_V4 = "transformers.models.deepseek_v4.modeling_deepseek_v4"
_CLASSES = {
    f"{_CACHE}.DummyLayer": _Known(_nothing, _revive_nothing),
    f"{_CACHE}.DynamicLayer": _Known(_full, _revive_full),
    f"{_CACHE}.DynamicSlidingWindowLayer": _Known(_sliding, _revive_sliding),
    f"{_CACHE}.DynamicIndexedLayer": _Known(_indexed, _revive_indexed),
    f"{_CACHE}.LinearAttentionLayer": _Known(_linear, _revive_linear),
    f"{_CACHE}.LinearAttentionAndFullAttentionLayer": _Known(_linear_full, _revive_linear_full),
    f"{_CACHE}.LinearAttentionAndSlidingWindowAttentionLayer": _Known(_linear_sliding, _revive_linear_sliding),
    f"{_V4}.DeepseekV4HCACache": _Known(_hca, _revive_v4),
    f"{_V4}.DeepseekV4CSACache": _Known(_csa, _revive_v4),
}
KNOWN_CLASSES = frozenset(_CLASSES)
"""Full names of the layer classes that can be saved and restored."""
