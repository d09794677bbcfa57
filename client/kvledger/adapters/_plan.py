"""From a live model to its layout.

The cache classes are asked, not the configuration: a probing forward of a few tokens fills a cache, and shapes, element
types and devices are read off what the model really keeps. Configurations name the same sizes in a dozen ways, and one
read wrongly would declare a layout that is wrong from then on.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from blake3 import blake3
from transformers import DynamicCache, PreTrainedModel

from kvledger.adapters._compute import forward
from kvledger.adapters._facets import Facet, Span
from kvledger.adapters._identity import Identity, identity_of
from kvledger.adapters._layers import describe
from kvledger.errors import CallerError, LayoutError
from kvledger.kinds import Form
from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.layout_rules import check_layout
from kvledger.layout_types import typed

__all__ = ["Plan", "plan_for"]

_ALIGNMENT = 64
_ABI_NUMBER = 1  # raised whenever the same layout string comes to mean other bytes
_LEAST_BLOCK_TOKENS = 128
_TEXT_MAX = 256


@dataclass(frozen=True)
class Plan:
    """A layout with what the codec needs to know beyond it.

    Attributes:
        layout: The layout.
        facets: What an owner layer of each group keeps, by group name.
        config: Configuration from which `DynamicCache` makes its layers.
        classes: Classes of the cache's layers.
        devices: Device of each layer's state; layers without state have none.
    """

    layout: Layout
    facets: Mapping[str, Facet]
    config: Any
    classes: tuple[type, ...]
    devices: Mapping[int, torch.device]

    @property
    def identity(self) -> Identity:
        """What the model was when its layout was read."""
        layout = self.layout
        return Identity(layout.weights_digest, layout.rope_digest, layout.config_digest)

    def owners(self, group: str) -> tuple[int, ...]:
        """Return the layers that keep the state of a group, in the order of their pages."""
        spec = self.layout.group(group)
        return spec.owner_layers or spec.layers


def plan_for(
    model: PreTrainedModel, *, tokenizer_digest: str, block_tokens: int | None = None, checkpoint_tokens: int = 0
) -> Plan:
    """Read a model's layout off its cache.

    Args:
        model: A decoder of Transformers 5; its cache is probed with a forward of a few tokens.
        tokenizer_digest: Digest of the tokenizer; part of the index key.
        block_tokens: Tokens of a block; the smallest multiple of all rows from 128 tokens on if None.
        checkpoint_tokens: Distance of the boundaries at which states are worth keeping, 0 for none.

    Raises:
        CallerError: `tokenizer_digest` is empty.
        LayoutError: a cache layer's class or way of sharing is not known, or `block_tokens` does not fit.
    """
    if not tokenizer_digest:
        remedy = "pass a digest of the tokenizer's files, so that equal ids mean equal text"
        raise CallerError("it is empty", field="tokenizer_digest", remedy=remedy)
    identity, cache = identity_of(model), _probe(model)
    facets = {i: describe(layer) for i, layer in enumerate(cache.layers)}
    named = _named_groups(facets)
    readers = _readers(model.config.get_text_config(decoder=True))
    specs = tuple(_spec(name, facet, layers, readers, partner) for name, (facet, layers, partner) in named.items())
    unit = math.lcm(*(facet.tokens_per_row for facet, _, _ in named.values() if facet.span is Span.ROWS))
    declared = Layout(
        model=model.config.model_type,
        weights_digest=identity.weights,
        rope_digest=identity.rope,
        config_digest=identity.config,
        tokenizer_digest=tokenizer_digest,
        dtype=str(model.dtype).removeprefix("torch."),
        abi={name: _abi(facet) for name, (facet, _, _) in named.items()},
        block_tokens=block_tokens or -(-_LEAST_BLOCK_TOKENS // unit) * unit,
        checkpoint_tokens=checkpoint_tokens,
        groups=specs,
    )
    layout = typed(declared)
    check_layout(layout)
    devices = {i: _device(cache.layers[i], found) for i, found in facets.items() if found}
    by_name = {name: facet for name, (facet, _, _) in named.items()}
    return Plan(layout, by_name, model.config, tuple(map(type, cache.layers)), devices)


def _probe(model: PreTrainedModel) -> DynamicCache:
    cache = DynamicCache(config=model.config)
    # An overlap is seen only after one whole row; every other tensor has its shape after the first token
    rates = [getattr(layer, "compress_rate", 1) for layer in cache.layers if hasattr(layer, "overlap_kv")]
    tokens = max(rates, default=1)
    ids = torch.zeros((1, tokens), dtype=torch.long, device=model.device)
    forward(model, cache, ids)
    return cache


_Group = tuple[Facet, list[int], str]


def _named_groups(facets: Mapping[int, list[Facet]]) -> dict[str, _Group]:
    """Return facet, layers and name of the partner group of each group, by name, compressed rows first."""
    groups: dict[tuple[Facet, Facet | None], list[int]] = {}
    for layer, found in facets.items():
        for facet in found:
            partner = next((f for f in found if facet.coupled and f.role == facet.coupled), None)
            groups.setdefault((facet, partner), []).append(layer)
    names: dict[tuple[Facet, Facet | None], str] = {}
    for key in groups:
        names[key] = _free_name(key[0].role, set(names.values()))
    return {
        names[key]: (key[0], layers, names[key[1], None] if key[1] is not None else "")
        for key, layers in sorted(groups.items(), key=lambda item: (bool(item[0][0].coupled), item[0][0].kind))
    }


def _free_name(role: str, taken: set[str]) -> str:
    return next(name for name in _numbered(role) if name not in taken)


def _numbered(base: str) -> Iterator[str]:
    yield base
    number = 2
    while True:
        yield f"{base}.{number}"
        number += 1


def _readers(config: Any) -> dict[int, int]:
    """Return the owner whose state each layer without a cache of its own reads.

    Transformers marks such layers ``reuse``; they read the nearest ``store`` layer before them of their own type
    (Gemma 3n and 4), or the one that ``kv_source_layers`` names.
    """
    modes = getattr(config, "kv_sharing_modes", None) or []
    odd = sorted({str(mode) for mode in modes} - {"None", "store", "reuse"})
    if odd:
        raise LayoutError(
            f"layers share their cache in the way {odd[0]!r}, which is not known",
            field="model.config.kv_sharing_modes",
            remedy="use a model whose layers share keys and values whole or not at all",
        )
    named = getattr(config, "kv_source_layers", None)
    return {i: named[i] if named else _store_before(config, modes, i) for i, m in enumerate(modes) if m == "reuse"}


def _store_before(config: Any, modes: list[str | None], layer: int) -> int:
    kind = config.layer_types[layer]
    return next(i for i in range(layer - 1, -1, -1) if modes[i] == "store" and config.layer_types[i] == kind)


def _spec(name: str, facet: Facet, owners: list[int], readers: Mapping[int, int], partner: str) -> GroupSpec:
    shared = sorted(layer for layer, owner in readers.items() if owner in owners)
    rows = facet.span is Span.ROWS
    return GroupSpec(
        name=name,
        kind=facet.kind,
        form=Form.ROWS if rows else Form.SNAPSHOT,
        layers=(*owners, *shared),
        owner_layers=tuple(owners) if shared else (),
        tokens_per_row=facet.tokens_per_row if rows else 1,
        row_bytes=0 if facet.span is Span.FIXED else facet.row_bytes,
        page_bytes=facet.row_bytes * facet.capacity,
        window=facet.window,
        halo_rows=facet.tokens_per_row if facet.span is Span.HALO else 0,
        coupled_to=partner,
        alignment=_ALIGNMENT,
        layout_id=f"transformers.{facet.role}",
        dtype="+".join(sorted({str(part.dtype).removeprefix("torch.") for part in facet.parts})),
    )


def _abi(facet: Facet) -> KernelABI:
    text = f"owner,part,row: {' '.join(map(str, facet.parts))}"
    if len(text) > _TEXT_MAX:
        text = f"blake3:{blake3(text.encode()).hexdigest()}"
    return KernelABI(name=f"transformers.{facet.role}", number=_ABI_NUMBER, layout=text, alignment=_ALIGNMENT)


def _device(layer: Any, facets: list[Facet]) -> torch.device:
    tensor = facets[0].parts[0].read(layer)
    assert tensor is not None, "a part was found because the layer holds it"
    return tensor.device
