"""Digests of what decides about the bytes of a cache: weights, position encoding, configuration.

Two processes that loaded the same model must come to the same digests, and one changed weight must change them, since
weights are what a layout is pinned to. So weights are read whole, once for each model object; a change in place is
noticed by the version counter that torch keeps for every tensor.
"""

import json
import weakref
from typing import Any, NamedTuple

import torch
from blake3 import blake3
from transformers import PreTrainedModel

__all__ = ["Identity", "identity_of"]

_CHUNK_BYTES = 64 << 20
_ROPE_FIELDS = ("rope_parameters", "rope_theta", "max_position_embeddings", "partial_rotary_factor")
# Fields that name, describe or train a model and can not change a byte of its cache
_INDIFFERENT = frozenset({
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "bos_token_id",
    "eos_token_id",
    "initializer_range",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "return_dict",
    "router_aux_loss_coef",
    "transformers_version",
    "use_cache",
})  # fmt: skip

_Stamp = tuple[tuple[int, int], ...]
_seen: "weakref.WeakKeyDictionary[torch.nn.Module, tuple[_Stamp, str]]" = weakref.WeakKeyDictionary()


class Identity(NamedTuple):
    """What a model is at this moment: three BLAKE3-256 as hex.

    Attributes:
        weights: Names, types, shapes and bytes of all parameters and buffers. Buffers that are not saved with a model
            (frequencies of a position encoding, say) count too: they decide about the cache as much as weights do.
        rope: Parameters of the position encoding.
        config: The configuration without names and training settings. The attention implementation counts: it decides
            in which order sums are taken, so its bytes differ.
    """

    weights: str
    rope: str
    config: str


def identity_of(model: PreTrainedModel) -> Identity:
    """Return what a model is now.

    Cheap after the first call: the digest of weights is kept for the life of the model object and made anew only when a
    tensor was replaced or written in place. Tensors made in inference mode count no writes, only replacement shows.
    """
    config = model.config.get_text_config(decoder=True)
    rope = _digest_json({name: getattr(config, name, None) for name in _ROPE_FIELDS})
    plain = {name: value for name, value in model.config.to_dict().items() if name not in _INDIFFERENT}
    plain["attention_implementation"] = model.config._attn_implementation  # noqa: SLF001 - the only place that tells
    return Identity(_weights(model), rope, _digest_json(plain))


def _weights(model: torch.nn.Module) -> str:
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    stamp = tuple((t.data_ptr(), _version(t)) for t in tensors.values())
    known = _seen.get(model)
    if known is None or known[0] != stamp:
        known = (stamp, _digest_tensors(tensors))
        _seen[model] = known
    return known[1]


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - torch has no public name for it


def _digest_tensors(tensors: dict[str, torch.Tensor]) -> str:
    digest = blake3(max_threads=blake3.AUTO)
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        head = f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0"
        digest.update(head.encode())
        flat = tensor.contiguous().view(-1).view(torch.uint8)
        for start in range(0, flat.numel(), _CHUNK_BYTES):
            digest.update(flat[start : start + _CHUNK_BYTES].cpu().numpy().data)
    return digest.hexdigest()


def _digest_json(value: Any) -> str:
    return blake3(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
