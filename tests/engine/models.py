"""Tiny models for the tests: the demo's, smaller still, and the layer classes that the demo does not show.

Together they hold every class that the adapter knows.
"""

from functools import cache

import torch

from kvledgerd.demo import models as demo

STD = 0.2
SMALL = {"hidden_size": 32, "num_attention_heads": 2, "head_dim": 16}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
PLAIN = {
    "vocab_size": 256,
    "initializer_range": STD,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "intermediate_size": 64,
}
V4_SMALL = SMALL | {
    "moe_intermediate_size": 32,
    "num_hidden_layers": 5,
    "layer_types": [
        "sliding_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
    ],
    "mlp_layer_types": ["hash_moe", "moe", "moe", "moe", "moe"],
    "q_lora_rank": 16,
    "o_lora_rank": 16,
    "sliding_window": 32,
    "index_head_dim": 16,
}


def deepseek_v4(top_k: int):
    """Build all three kinds of V4 layers; with 16 for top-k a prompt outgrows the indexer after 64 tokens."""
    return demo.build("deepseek-v4", **V4_SMALL, index_topk=top_k)


def gpt_oss():
    """Build full and sliding layers in turn."""
    return demo.build("gpt-oss", **SMALL, intermediate_size=32, num_hidden_layers=4, sliding_window=32)


def gemma3():
    """Build full layers among sliding ones."""
    return demo.build("gemma3", **SMALL, intermediate_size=64, num_hidden_layers=5, sliding_window=32)


def qwen3_next():
    """Build recurrent layers with a full one."""
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    config = Qwen3NextConfig(
        **PLAIN,
        **SMALL,
        **MOE,
        num_key_value_heads=1,
        num_hidden_layers=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        num_experts=4,
        shared_expert_intermediate_size=32,
    )
    return seeded(Qwen3NextForCausalLM, config)


def deepseek_v32():
    """Build indexed layers; top-k is above the prompts, since two equal scores would decide what is read."""
    from transformers import DeepseekV32Config, DeepseekV32ForCausalLM

    config = DeepseekV32Config(
        **PLAIN,
        **MOE,
        hidden_size=32,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=3,
        first_k_dense_replace=2,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=16,
        index_n_heads=16,
        index_head_dim=16,
        index_topk=512,
    )
    return seeded(DeepseekV32ForCausalLM, config)


def gemma3n():
    """Build layers of which the last two read the keys and values of earlier ones."""
    from transformers import Gemma3nForCausalLM, Gemma3nTextConfig

    config = Gemma3nTextConfig(
        **(PLAIN | SMALL | {"intermediate_size": [64] * 6}),
        num_key_value_heads=1,
        num_hidden_layers=6,
        num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 3,
        activation_sparsity_pattern=[0.0] * 6,
        sliding_window=32,
        vocab_size_per_layer_input=256,
        hidden_size_per_layer_input=8,
        laurel_rank=8,
    )
    return seeded(Gemma3nForCausalLM, config)


def falcon_h1():
    """Build layers that keep a recurrent state and full attention both."""
    from transformers import FalconH1Config, FalconH1ForCausalLM

    config = FalconH1Config(
        **PLAIN,
        hidden_size=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_hidden_layers=3,
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=32,
    )
    return seeded(FalconH1ForCausalLM, config)


def lfm2():
    """Build layers that keep a convolution's state and no recurrent one."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    config = Lfm2Config(
        **PLAIN,
        hidden_size=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_hidden_layers=4,
        layer_types=["conv", "conv", "full_attention", "conv"],
    )
    return seeded(Lfm2ForCausalLM, config)


def inkling():
    """Build layers of four convolution states each, beside sliding and full attention in turn."""
    from transformers.models.inkling.configuration_inkling import InklingTextConfig
    from transformers.models.inkling.modeling_inkling import InklingForCausalLM

    config = InklingTextConfig(
        **(PLAIN | SMALL | MOE),
        num_key_value_heads=1,
        swa_num_attention_heads=2,
        swa_num_key_value_heads=1,
        swa_head_dim=16,
        sliding_window_size=32,
        num_hidden_layers=4,
        layer_types=["hybrid_sliding", "hybrid"] * 2,
        n_routed_experts=4,
        n_shared_experts=1,
        d_rel=8,
        rel_extent=64,
        route_scale=1.0,
        logits_mup_width_multiplier=1.0,
    )
    return seeded(InklingForCausalLM, config)


def seeded(kind, config):
    """Build a model of any class with weights that are equal in every run."""
    torch.manual_seed(7)
    model = kind(config)
    model.train(mode=False)
    return model


BUILDERS = {
    "deepseek-v4": lambda: deepseek_v4(64),
    "deepseek-v4-sparse": lambda: deepseek_v4(16),
    "gpt-oss": gpt_oss,
    "gemma3": gemma3,
    "gemma3n": gemma3n,
    "qwen3-next": qwen3_next,
    "deepseek-v3.2": deepseek_v32,
    "falcon-h1": falcon_h1,
    "lfm2": lfm2,
    "inkling": inkling,
    "deepseek-v4-bf16": lambda: deepseek_v4(64).to(torch.bfloat16),
    "gpt-oss-bf16": lambda: gpt_oss().to(torch.bfloat16),
    "qwen3-next-bf16": lambda: qwen3_next().to(torch.bfloat16),
}


@cache
def model(name: str):
    """Return a model by name, built once in a test run; tests that change one build their own."""
    return BUILDERS[name]()
