"""Random weights for the tiny golden models, and their reference results by transformers (eager, fp32, CPU)."""

import dataclasses
import zlib

import numpy as np
import torch

# Values below this are stored as zero, so that every weight is exact in bf16, f16 and f32 alike.
SMALLEST = 2.0**-16


def _deviation(name: str, shape: tuple[int, ...], config) -> float:
    """Standard deviations that keep attention neither flat nor one-hot, and the logits a few units wide."""
    if name.endswith("embed_tokens.weight"):
        if not config.tie_word_embeddings:
            return 1.0
        return (0.4 if config.model_type.startswith("gemma") else 3.0) / shape[-1] ** 0.5
    if name.endswith(".bias"):
        return 0.5
    gains = {"lm_head": 3.0, "q_proj": 1.4, "k_proj": 1.4, "qkv_proj": 1.4, "down_proj": 2.0}
    part = next((p for p in reversed(name.split(".")) if p != "weight"), "")
    return gains.get(part, 1.5) / shape[-1] ** 0.5


def _norm_mean(name: str, config) -> float:
    """Gemma's norms add one to their weight, and its scaled embeddings must not drown what the layers add."""
    if not config.model_type.startswith("gemma"):
        return 1.0
    return 6.0 if name == "model.norm.weight" else 0.5 if "post_" in name or ".self_attn." in name else 0.0


@torch.no_grad()
def randomize(model, seed: int) -> None:
    """Draws every parameter from a stream of its own, named by the seed and the parameter."""
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape)
        draw = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())])).standard_normal(shape)
        if "norm" in name:
            values = 0.25 * draw + _norm_mean(name, model.config)
        else:
            values = _deviation(name, shape, model.config) * draw
        values = torch.from_numpy(values.astype(np.float32)).to(torch.bfloat16).to(torch.float32)
        values[values.abs() < SMALLEST] = 0.0
        parameter.copy_(values)
    model.tie_weights()


def fix_rope_length(model, tokens: int) -> None:
    """Dynamic NTK recomputes the frequencies as the sequence grows; this fixes them at those of `tokens` positions."""
    rope = model.base_model.rotary_emb
    if "dynamic" not in rope.rope_type:
        return
    rope.max_seq_len_cached = rope.original_max_seq_len
    rope.inv_freq = rope.original_inv_freq.clone()
    if tokens >= rope.original_max_seq_len:
        rope(torch.zeros(1, 1), torch.tensor([[tokens - 1]]))
        assert tokens == rope.original_max_seq_len or rope.max_seq_len_cached == tokens


class RouterMargins:
    """Smallest gap, over all tokens and layers, between the last expert chosen and the first one not chosen."""

    def __init__(self, model):
        self.smallest = float("inf")
        for module in model.modules():
            if type(module).__name__.endswith("TopKRouter"):
                module.register_forward_hook(self._observe)

    def _observe(self, module, _inputs, outputs) -> None:
        probabilities = torch.softmax(outputs[0].float(), -1).sort(-1, descending=True).values
        gap = probabilities[..., module.top_k - 1] - probabilities[..., module.top_k]
        self.smallest = min(self.smallest, float(gap.min()))


@dataclasses.dataclass
class CaseResult:
    prompt: list[int]
    context: int
    positions: list[int]
    logits: np.ndarray  # [positions, vocab]
    greedy: list[int]
    final_logits: np.ndarray | None  # [vocab], of the step that chose the last greedy token
    margin: float  # smallest (first - second) / max |logit| over the greedy steps
    cache_error: float  # largest |cached - recomputed| / max |logit|


def run_case(model, prompt: list[int], context: int, greedy_tokens: int) -> CaseResult:
    fix_rope_length(model, context)
    tokens = torch.tensor([prompt])
    whole = model(tokens, use_cache=False).logits[0]
    stride = 16
    positions = sorted({*range(stride - 1, len(prompt), stride), len(prompt) - 1})
    greedy, margin, last, error = [], float("inf"), None, 0.0
    if greedy_tokens:
        out = model(tokens, use_cache=True)
        stepped = []
        for _ in range(greedy_tokens):
            last = out.logits[0, -1]
            stepped.append(last)
            top = last.topk(2)
            margin = min(margin, float((top.values[0] - top.values[1]) / last.abs().max()))
            greedy.append(int(top.indices[0]))
            out = model(torch.tensor([[greedy[-1]]]), past_key_values=out.past_key_values, use_cache=True)
        again = model(torch.tensor([prompt + greedy[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :]
        assert again.argmax(-1).tolist() == greedy, "the cached and the recomputed continuation differ"
        error = float((again - torch.stack(stepped)).abs().max() / again.abs().max())
        last = last.numpy()
    return CaseResult(prompt, context, positions, whole[positions].numpy(), greedy, last, margin, error)


def is_lively(greedy: list[int], specials: list[int]) -> bool:
    """Neither a short loop nor a token that would end the text."""
    return len(set(greedy)) >= 20 and len(set(greedy[-24:])) >= 12 and not set(greedy) & set(specials)
