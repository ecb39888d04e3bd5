"""The network, a Llama with Hugging Face's names, and its files."""
import json
import math
import os

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

EPS, HEAD = 1e-5, 64
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


class Shape:
    def __init__(self, layers=10, dim=512, heads=8, kv_heads=2, ffn=1280, vocabulary=8192, context=131072, theta=1e6):
        self.layers, self.dim, self.heads, self.kv_heads, self.ffn = layers, dim, heads, kv_heads, ffn
        self.vocabulary, self.context, self.theta = vocabulary, context, theta

    def config(self):
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": self.vocabulary,
                "hidden_size": self.dim, "intermediate_size": self.ffn, "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "head_dim": HEAD,
                "hidden_act": "silu", "max_position_embeddings": self.context, "rms_norm_eps": EPS,
                "rope_theta": self.theta, "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
                "bos_token_id": 0, "eos_token_id": 2, "torch_dtype": "bfloat16"}

    @staticmethod
    def of(config):
        return Shape(config["num_hidden_layers"], config["hidden_size"], config["num_attention_heads"],
                     config["num_key_value_heads"], config["intermediate_size"], config["vocab_size"],
                     config["max_position_embeddings"], config["rope_theta"])


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.q_proj, self.o_proj = linear(s.dim, s.heads * HEAD), linear(s.heads * HEAD, s.dim)
        self.k_proj, self.v_proj = linear(s.dim, s.kv_heads * HEAD), linear(s.dim, s.kv_heads * HEAD)

    def project(self, x, cos, sin):
        heads = lambda t: t.view(*t.shape[:2], -1, HEAD).transpose(1, 2)
        turn = lambda t: t * cos + torch.cat((-t[..., HEAD // 2:], t[..., :HEAD // 2]), -1) * sin
        return turn(heads(self.q_proj(x))), turn(heads(self.k_proj(x))), heads(self.v_proj(x))

    def forward(self, x, cos, sin):
        q, k, v = self.project(x, cos, sin)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(o.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(s.dim, s.ffn, bias=False), nn.Linear(s.dim, s.ffn, bias=False)
        self.down_proj = nn.Linear(s.ffn, s.dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(s.dim, EPS), nn.RMSNorm(s.dim, EPS)
        self.self_attn, self.mlp = Attention(s), Mlp(s)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Net(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.dim)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.dim, EPS)
        for name, p in self.named_parameters():
            if p.ndim == 2: nn.init.normal_(p, std=0.02 if "embed" in name else 0.5 / math.sqrt(p.shape[1]))
            if name.endswith(("o_proj.weight", "down_proj.weight")): nn.init.zeros_(p)

    def rotations(self, positions):
        f = self.shape.theta ** (-torch.arange(0, HEAD, 2, device=positions.device, dtype=torch.float32) / HEAD)
        a = positions[..., None].float() * f
        a = torch.cat((a, a), -1)[:, None]
        return a.cos().bfloat16(), a.sin().bfloat16()

    def hidden(self, x, positions=None):
        """Hidden states after the last norm. `positions` default to 0, 1, 2 … in every row."""
        if positions is None: positions = torch.arange(x.shape[1], device=x.device)[None]
        cos, sin = self.rotations(positions)
        h = self.embed_tokens(x).bfloat16()
        for layer in self.layers: h = layer(h, cos, sin)
        return self.norm(h)

    def logits(self, h):
        return F.linear(h, self.embed_tokens.weight.to(h.dtype))


def weighted_loss(h, embedding, y, w):
    """Of [tokens, dim], [tokens] and [tokens]."""
    return (F.cross_entropy(F.linear(h, embedding.to(h.dtype)).float(), y, reduction="none") * w).sum()


def divergence(h, embedding, teacher_h, teacher_embedding):
    """Kullback-Leibler divergence from the teacher's next-token distributions to the student's, summed over tokens."""
    of = lambda h, e: F.log_softmax(F.linear(h, e.to(h.dtype)).float(), -1).flatten(0, 1)
    return F.kl_div(of(h, embedding), of(teacher_h, teacher_embedding), reduction="sum", log_target=True)


def save(net, folder, tokenizer, shard_bytes=15 << 20):
    """The Hugging Face layout, in bf16, sharded."""
    os.makedirs(folder, exist_ok=True)
    shards, size = [{}], 0
    for name, p in net.named_parameters():
        t = p.detach().to(torch.bfloat16).contiguous().cpu()
        if size and size + t.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1]["model." + name] = t
        size += t.nbytes
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for name, shard in zip(names, shards): save_file(shard, os.path.join(folder, name), metadata={"format": "pt"})
    def write(name, what):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f: json.dump(what, f, indent=1)
    write("model.safetensors.index.json", {"metadata": {}, "weight_map": {k: n for n, s in zip(names, shards) for k in s}})
    write("config.json", net.shape.config())
    write("generation_config.json", {"bos_token_id": 0, "eos_token_id": [2, 0]})
    write("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>",
                                    "eos_token": "<|im_end|>", "add_bos_token": True,
                                    "model_max_length": net.shape.context, "chat_template": TEMPLATE})
    tokenizer.save(os.path.join(folder, "tokenizer.json"))


def load(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f: net = Net(Shape.of(json.load(f)))
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"): tensors |= load_file(os.path.join(folder, name))
    net.load_state_dict({k.removeprefix("model."): v.float() for k, v in tensors.items()})
    return net
