"""Tiny random models with the cache layers of the real ones, made locally and equal in every process.

Weights are drawn with a standard deviation of 0.2 and embeddings are not tied, since otherwise greedy decoding repeats
one token for ever and proves nothing. All computation is float32. The vocabulary is the 256 bytes, so that any text is
a prompt. DeepSeek-V4 gets 16 indexer heads, so that equal scores do not decide which rows it reads, and a top-k that a
prompt of 2,000 tokens exceeds by far.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["NAMES", "build"]

_SEED = 20260
_STD = 0.2
_COMMON: dict[str, Any] = {
    "vocab_size": 256,
    "initializer_range": _STD,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "max_position_embeddings": 8192,
}


def build(name: str, **overrides: Any) -> "PreTrainedModel":
    """Return a model in evaluation mode on the CPU.

    Args:
        name: One of `NAMES`.
        overrides: Fields of the configuration that differ from the demo's, for tests that want it smaller.

    Raises:
        KeyError: there is no model of that name.
    """
    import torch  # noqa: PLC0415 - the daemon that ships this file runs without torch

    torch.manual_seed(_SEED)
    model = _BUILDERS[name](**overrides)
    model.train(mode=False)
    return model


def _deepseek_v4(**fields: Any) -> "PreTrainedModel":
    import torch  # noqa: PLC0415 - the daemon that ships this file runs without torch
    from transformers import DeepseekV4Config, DeepseekV4ForCausalLM  # noqa: PLC0415 - imports one model, not three

    hca, csa = "heavily_compressed_attention", "compressed_sparse_attention"
    shape: dict[str, Any] = {
        "hidden_size": 128,
        "moe_intermediate_size": 128,
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", hca, csa, hca, csa, "sliding_attention"],
        "mlp_layer_types": ["hash_moe", "moe", "moe", "moe", "moe", "moe"],
        "num_attention_heads": 4,
        "head_dim": 64,
        "partial_rotary_factor": 0.5,
        "q_lora_rank": 64,
        "o_groups": 2,
        "o_lora_rank": 32,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "hc_mult": 2,
        "hc_sinkhorn_iters": 4,
        "sliding_window": 128,
        "index_n_heads": 16,
        "index_head_dim": 32,
        "index_topk": 64,
    }
    model = DeepseekV4ForCausalLM(DeepseekV4Config(**(_COMMON | shape | fields)))
    # Initialised with zeros, which would hide a wrong position in a window, a lost sink, a wrong token in a route
    for parameter in (p for n, p in model.named_parameters() if n.endswith(("position_bias", "sinks"))):
        torch.nn.init.normal_(parameter, std=_STD)
    for table in (b for n, b in model.named_buffers() if n.endswith("tid2eid")):
        table.random_(model.config.n_routed_experts)
    return model


def _gpt_oss(**fields: Any) -> "PreTrainedModel":
    from transformers import GptOssConfig, GptOssForCausalLM  # noqa: PLC0415 - imports one model, not three

    shape: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "sliding_window": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        # 32 times the 4,096 tokens that its YaRN parameters start from
        "max_position_embeddings": 131072,
        "attn_implementation": "eager",
    }
    return GptOssForCausalLM(GptOssConfig(**(_COMMON | shape | fields)))


def _gemma3(**fields: Any) -> "PreTrainedModel":
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig  # noqa: PLC0415 - imports one model, not three

    shape: dict[str, Any] = {
        "hidden_size": 128,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "sliding_window_pattern": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "sliding_window": 128,
        "attn_implementation": "eager",
    }
    return Gemma3ForCausalLM(Gemma3TextConfig(**(_COMMON | shape | fields)))


_BUILDERS: dict[str, Callable[..., "PreTrainedModel"]] = {
    "deepseek-v4": _deepseek_v4,
    "gpt-oss": _gpt_oss,
    "gemma3": _gemma3,
}
NAMES = tuple(_BUILDERS)
