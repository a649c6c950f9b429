"""Tiny random models of many architectures, all with the same sizes."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

COMMON = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}
GROUPED = {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 16}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
GPT2 = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "n_inner": 48}
WINDOW = {"sliding_window": 8}

FAMILIES: dict[str, dict[str, object]] = {
    "llama": GROUPED,
    "mistral": GROUPED | WINDOW,
    "ministral": WIDE | WINDOW,
    "mixtral": GROUPED | {"num_local_experts": 4},
    "qwen2": GROUPED,
    "qwen2_moe": GROUPED | EXPERTS | {"shared_expert_intermediate_size": 24},
    "qwen3": WIDE,
    "qwen3_moe": WIDE | EXPERTS,
    "gemma": WIDE,
    "gemma2": WIDE | WINDOW | {"query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0},
    "gemma3_text": WIDE | WINDOW | {"query_pre_attn_scalar": 16},
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_neox": {},
    "gptj": GPT2 | {"rotary_dim": 4},
    "codegen": GPT2 | {"rotary_dim": 4},
    "gpt_oss": WIDE | WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo": GROUPED,
    "olmo2": GROUPED,
    "olmo3": GROUPED | WINDOW,
    "olmoe": GROUPED | {"num_experts": 4, "num_experts_per_tok": 2},
    "phi": GROUPED,
    "phi3": GROUPED,
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "smollm3": GROUPED,
    "granite": GROUPED | {"residual_multiplier": 0.5, "logits_scaling": 3.0, "embedding_multiplier": 2.0},
    "stablelm": GROUPED,
    "starcoder2": GROUPED,
    "cohere": GROUPED | {"logit_scale": 0.25},
    "cohere2": GROUPED | WINDOW | {"logit_scale": 0.25},
    "exaone4": GROUPED,
    "glm": WIDE,
    "glm4": WIDE,
    "llama4_text": WIDE | {"num_local_experts": 2, "attention_chunk_size": 8, "intermediate_size_mlp": 48},
    "nemotron": WIDE,
    "helium": GROUPED | {"head_dim": 8},
    "ernie4_5": WIDE,
    "seed_oss": WIDE,
    "arcee": WIDE,
    "hunyuan_v1_dense": WIDE,
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
        "first_k_dense_replace": 3,
    },
    "apertus": GROUPED,
    "persimmon": {},
    "biogpt": {},
}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 8}
HYBRIDS: dict[str, dict[str, object]] = {
    "lfm2": GROUPED | {"layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 8},
    "lfm2_moe": GROUPED
    | {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1, "moe_intermediate_size": 24}
    | {"num_experts": 4, "num_experts_per_tok": 2},
    "jamba": GROUPED
    | {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 4, "expert_layer_offset": 3}
    | {"num_experts": 2, "use_mamba_kernels": False, "mamba_d_state": 4, "mamba_dt_rank": 4},
    "bamba": GROUPED | MAMBA | {"attn_layer_indices": [1]},
    "granitemoehybrid": GROUPED
    | MAMBA
    | {"layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 0, "shared_intermediate_size": 48},
    "olmo_hybrid": GROUPED | {"layer_types": ["linear_attention", "linear_attention", "full_attention"]},
    "minimax": WIDE
    | {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "block_size": 8}
    | {"num_local_experts": 2, "num_experts_per_tok": 1},
    "nemotron_h": WIDE | {"hybrid_override_pattern": "M*M-"},
    "recurrent_gemma": GROUPED,
}
"""Some layers attend, the others hold a convolution, a state space or linear attention."""
REFUSED: dict[str, dict[str, object]] = {
    "bloom": {"n_layer": 3, "n_head": 4},
    "falcon": {},
    "gpt_neo": {"num_layers": 3, "attention_types": [[["global"], 3]]},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 3},
    "xglm": {"d_model": 32, "attention_heads": 4, "ffn_dim": 48, "num_layers": 3},
    "bitnet": {"num_key_value_heads": 4},
    "qwen3_next": WIDE,
    "kimi_linear": {},
}


def tiny(family: str, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **(COMMON | (FAMILIES | HYBRIDS | REFUSED)[family]))
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
