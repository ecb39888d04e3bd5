"""The tiny golden models: one `Spec` a folder of tests/data/models.

`config` is config.json as published models of the family have it (transformers 4 layout: rope_theta beside
rope_scaling), less what make_models.py adds: vocabulary size, special ids and dtype. With `v5_config` the folder's
config.json is instead what transformers 5 writes (rope_parameters). `ablations` are changes of the config that must
move the logits: they prove that the goldens would notice a loader that overlooks the feature.
"""

import dataclasses


@dataclasses.dataclass
class Case:
    name: str = "main"
    prompt_tokens: int = 128
    greedy_tokens: int = 64
    context_tokens: int = 0  # 0: prompt_tokens + greedy_tokens


@dataclasses.dataclass
class Spec:
    name: str
    tokenizer: str  # byte:llama-bpe, byte:qwen2, sp:llama, sp:mistral, sp:gemma
    config: dict
    ablations: list[dict] = dataclasses.field(default_factory=list)
    cases: list[Case] = dataclasses.field(default_factory=lambda: [Case()])
    storage: str = "bfloat16"
    shards: int = 1
    v5_config: bool = False
    template_file: bool = False  # chat_template.jinja instead of a field of tokenizer_config.json
    notes: str = ""


def _config(architecture: str, model_type: str, **fields) -> dict:
    base = {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_dropout": 0.0,
    }
    return base | fields


def _llama(**fields) -> dict:
    return _config("LlamaForCausalLM", "llama", attention_bias=False, mlp_bias=False, **fields)


def _small_llama(**fields) -> dict:
    small = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "tie_word_embeddings": True,
    }
    return _llama(**(small | fields))


def _gemma(architecture: str, model_type: str, **fields) -> dict:
    config = _config(architecture, model_type, **fields)
    del config["hidden_act"]
    common = {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
    }
    return config | common | fields


_LONGROPE_SHORT = [1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0]
_LONGROPE_LONG = [1.1, 1.3, 1.7, 2.2, 2.9, 3.7, 4.8, 6.0, 7.5, 9.0, 11.0, 13.5]

SPECS = [
    Spec(
        "llama", "sp:llama",
        _llama(num_key_value_heads=4, max_position_embeddings=512, pretraining_tp=1, rope_scaling=None),
        [{"rope_theta": 20000.0}, {"rms_norm_eps": 0.2}],
        notes="Llama 2: multi-head attention, untied, SentencePiece-style tokenizer",
    ),
    Spec(
        "llama3", "byte:llama-bpe",
        _llama(tie_word_embeddings=True, rope_theta=500000.0, head_dim=16, rope_scaling={
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
            "rope_type": "llama3"}),
        [{"rope_scaling": None}],
        notes="Llama 3.2: grouped heads, tied, llama3 rope scaling from 64 positions",
    ),
    Spec(
        "llama-linear", "byte:llama-bpe", _small_llama(rope_scaling={"type": "linear", "factor": 4.0}),
        [{"rope_scaling": None}], storage="float32",
        notes="linear rope scaling, named by the old key `type`; weights stored as F32",
    ),
    Spec(
        "llama-dynamic", "byte:llama-bpe",
        _small_llama(max_position_embeddings=64, rope_scaling={"type": "dynamic", "factor": 2.0}),
        [{"rope_scaling": None}], storage="float16",
        cases=[Case("main"), Case("whole", 128, 0, 128), Case("within", 48, 0, 64)],
        notes="dynamic NTK over 64 positions; weights stored as F16",
    ),
    Spec(
        "llama-yarn", "byte:llama-bpe",
        _small_llama(rope_scaling={"factor": 8.0, "original_max_position_embeddings": 64, "type": "yarn"}),
        [{"rope_scaling": None}, {"rope_scaling": {"factor": 8.0, "type": "linear"}},
         {"rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 64, "type": "yarn",
                           "attention_factor": 1.0}}],
        notes="YaRN with its defaults",
    ),
    Spec(
        "llama-yarn-mscale", "byte:llama-bpe",
        _small_llama(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 48,
                                   "beta_fast": 8.0, "beta_slow": 0.5, "mscale": 1.0, "mscale_all_dim": 0.4,
                                   "truncate": False}),
        [{"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 48, "beta_fast": 8.0,
                           "beta_slow": 0.5, "mscale": 1.0, "mscale_all_dim": 0.4}},
         {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 48, "mscale": 1.0,
                           "mscale_all_dim": 0.4, "truncate": False}},
         {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 48, "beta_fast": 8.0,
                           "beta_slow": 0.5, "truncate": False}}],
        v5_config=True,
        notes="YaRN with betas, mscale, mscale_all_dim and untruncated correction range",
    ),
    Spec(
        "mistral", "sp:mistral", _config("MistralForCausalLM", "mistral", sliding_window=37, head_dim=16),
        [{"sliding_window": None}, {"sliding_window": 38}],
        notes="sliding window of 37 on every layer",
    ),
    Spec(
        "qwen2", "byte:qwen2",
        _config("Qwen2ForCausalLM", "qwen2", tie_word_embeddings=True, rope_theta=1000000.0, rms_norm_eps=1e-6,
                sliding_window=24, use_sliding_window=False, max_window_layers=1),
        [{"use_sliding_window": True}],
        notes="biases on Q, K and V; a sliding window that is switched off",
    ),
    Spec(
        "qwen2-window", "byte:qwen2",
        _config("Qwen2ForCausalLM", "qwen2", hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=24, use_sliding_window=True,
                max_window_layers=1),
        [{"use_sliding_window": False}, {"max_window_layers": 0}, {"max_window_layers": 2}],
        notes="sliding window of 24 on layers 1 and 2, not on layer 0; untied; head size 8",
    ),
    Spec(
        "qwen3", "byte:qwen2",
        _config("Qwen3ForCausalLM", "qwen3", tie_word_embeddings=True, rope_theta=1000000.0, rms_norm_eps=1e-6,
                head_dim=32, attention_bias=False, num_key_value_heads=1, intermediate_size=64, sliding_window=None,
                use_sliding_window=False, max_window_layers=2),
        [{"rope_theta": 10000.0}], shards=2, template_file=True,
        notes="QK norm, head size 32 with 4 heads of a hidden size of 64; two shards; chat_template.jinja",
    ),
    Spec(
        "gemma2", "sp:gemma",
        _gemma("Gemma2ForCausalLM", "gemma2", num_hidden_layers=4, intermediate_size=64, attn_logit_softcapping=3.0,
               final_logit_softcapping=10.0, query_pre_attn_scalar=8, sliding_window=21),
        [{"attn_logit_softcapping": None}, {"final_logit_softcapping": None}, {"query_pre_attn_scalar": 32},
         {"sliding_window": 22}, {"sliding_window": 4096}],
        notes="soft caps, window of 21 on layers 0 and 2, attention scale 1/sqrt(8) with head size 32, post norms",
    ),
    Spec(
        "gemma3", "sp:gemma",
        _gemma("Gemma3ForCausalLM", "gemma3_text", num_hidden_layers=7, intermediate_size=32,
               attn_logit_softcapping=None, final_logit_softcapping=None, query_pre_attn_scalar=32,
               sliding_window=21, sliding_window_pattern=6,
               rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling={"rope_type": "linear", "factor": 8.0}),
        [{"sliding_window": 22}, {"rope_scaling": None}, {"rope_local_base_freq": 1000000.0},
         {"sliding_window_pattern": 5}],
        notes="QK norm, layer 5 global with linear rope scaling, the others a window of 21 with their own rope theta",
    ),
    Spec(
        "phi3", "sp:llama",
        _config("Phi3ForCausalLM", "phi3", num_attention_heads=2, num_key_value_heads=1, sliding_window=45,
                original_max_position_embeddings=2048, rope_scaling=None, resid_pdrop=0.0, embd_pdrop=0.0,
                intermediate_size=64),
        [{"sliding_window": None}, {"sliding_window": 46}],
        notes="fused QKV and gate/up; sliding window of 45",
    ),
    Spec(
        "phi3-longrope", "byte:qwen2",
        _config("Phi3ForCausalLM", "phi3", num_attention_heads=2, num_key_value_heads=1, sliding_window=None,
                max_position_embeddings=1024, original_max_position_embeddings=160, partial_rotary_factor=0.75,
                resid_pdrop=0.0, embd_pdrop=0.0, intermediate_size=64, tie_word_embeddings=True,
                rope_scaling={"type": "longrope", "short_factor": _LONGROPE_SHORT, "long_factor": _LONGROPE_LONG}),
        [{"original_max_position_embeddings": 512}, {"partial_rotary_factor": 1.0, "rope_scaling": None},
         {"max_position_embeddings": 160}],
        cases=[Case("short", 96, 64), Case("long", 192, 64)],
        notes="short and long factors around 160 positions, partial rotary factor 0.75 (24 of 32)",
    ),
    Spec(
        "mixtral", "sp:mistral",
        _config("MixtralForCausalLM", "mixtral", sliding_window=None, num_local_experts=4, num_experts_per_tok=2,
                num_key_value_heads=1, intermediate_size=32, rope_theta=1000000.0, head_dim=16,
                output_router_logits=False, router_aux_loss_coef=0.001),
        [{"num_experts_per_tok": 1}],
        notes="4 experts, top 2",
    ),
    Spec(
        "qwen3-moe", "byte:qwen2",
        _config("Qwen3MoeForCausalLM", "qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], head_dim=16, num_attention_heads=2,
                num_key_value_heads=1, rope_theta=1000000.0, rms_norm_eps=1e-6, attention_bias=False,
                sliding_window=None,
                use_sliding_window=False, max_window_layers=2, output_router_logits=False, router_aux_loss_coef=0.001),
        [{"norm_topk_prob": False}, {"num_experts_per_tok": 1}],
        notes="4 experts, top 2, normalized router weights, QK norm",
    ),
    Spec(
        "qwen3-moe-mixed", "byte:qwen2",
        _config("Qwen3MoeForCausalLM", "qwen3_moe", hidden_size=32, intermediate_size=64, num_hidden_layers=4,
                num_experts=4, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=False,
                decoder_sparse_step=2,
                mlp_only_layers=[1], head_dim=16, rope_theta=1000000.0, rms_norm_eps=1e-6, attention_bias=False,
                sliding_window=None, use_sliding_window=False, max_window_layers=4, tie_word_embeddings=True,
                output_router_logits=False, router_aux_loss_coef=0.001),
        [{"norm_topk_prob": True}], v5_config=True,
        notes="4 experts, top 3, router weights as they are; "
        "only layer 3 is sparse (decoder_sparse_step 2, mlp_only_layers [1])",
    ),
]  # fmt: skip
