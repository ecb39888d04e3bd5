"""What goes with the model: a draft model, Medusa heads, DuoAttention gates. Each is fitted to the frozen model.

    python3 companions.py draft  --model MODEL --corpus CORPUS --out OUT --minutes 2.5
    python3 companions.py medusa --model MODEL --corpus CORPUS --out OUT --minutes 1
    python3 companions.py duo    --model MODEL --corpus CORPUS --out OUT --minutes 1
"""
import argparse
import json
import os
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import measure
from corpus import Library, encode_books, read_books
from evaluate import acceptance
from net import Net, Shape, divergence, load, save
from optim import Optimizer
from samples import SampleMaker
from train import row_loader

DRAFT = Shape(layers=4, dim=224, heads=3, kv_heads=1, ffn=608)  # 3.9 M parameters
MEDUSA_HEADS = 4
SINKS, RECENT = 64, 256  # what a streaming head keeps
GATE_COST = 0.05


def log(*what):
    print(f"[{time.time() - T0:6.1f}]", *what, flush=True)


T0 = time.time()


def rate_at(passed, step):
    return min(1.0, (step + 1) / 50) * (1.0 if passed < 0.3 else max(0.02, (1 - passed) / 0.7))


def fit_draft(net, tokenizer, books, held, a, device):
    """Distillation: the draft learns the model's distribution, over books and tasks, at all positions."""
    draft = Net(DRAFT if not a.tiny else Shape(layers=1, dim=64, heads=1, kv_heads=1, ffn=64)).to(device)
    log("parameters of the draft", sum(p.numel() for p in draft.parameters()))
    optimizer = Optimizer(draft, 5e-3)

    distance = divergence
    if device.type == "cuda":
        torch._dynamo.config.recompile_limit = 64
        distance = torch.compile(divergence, dynamic=False)
        for m in (net, draft):
            for layer in m.layers: layer.compile(dynamic=False)
    loaders = [row_loader(tokenizer, books, n, net.shape.context, a.workers, a.seed) for n in ("prose", "2048", "prose", "512")]
    start, step, last = time.time(), 0, []
    while (passed := (time.time() - start) / (a.minutes * 60)) < 1:
        rate = rate_at(passed, step)
        x, at = (t.to(device, non_blocking=True) for t in next(loaders[step % len(loaders)])[:2])
        x = x[:, :-1]
        with measure.autocast(device):
            with torch.no_grad(): taught = net.hidden(x, at)
            loss = distance(draft.hidden(x, at), draft.embed_tokens.weight, taught, net.embed_tokens.weight) / x.numel()
        loss.backward()
        optimizer.step(rate)
        step += 1
        last.append(loss.detach())
        if step % 100 == 0 or a.tiny: log(f"step {step} divergence {float(sum(last[-50:]) / len(last[-50:])):.3f}")
    save(draft, a.out, tokenizer)
    return {"steps": step, "greedy acceptance on book text": round(acceptance(net, draft, held), 3)}


class Medusa(nn.Module):
    """Head k guesses the token k + 2 places on, from the model's last hidden state, with the model's own output matrix."""

    def __init__(self, dim):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(dim, dim) for _ in range(MEDUSA_HEADS))
        for h in self.heads: nn.init.zeros_(h.weight), nn.init.zeros_(h.bias)

    def forward(self, h):
        return [h + F.silu(head(h)) for head in self.heads]


def fit_medusa(net, tokenizer, books, held, a, device):
    medusa = Medusa(net.shape.dim).to(device)
    adam = torch.optim.AdamW(medusa.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.0)
    loader, start, step = row_loader(tokenizer, books, "prose", net.shape.context, a.workers, a.seed), time.time(), 0

    def choices(x, at=None):
        with torch.no_grad(), measure.autocast(device):
            h = net.hidden(x, at)
            return h, net.logits(h).argmax(-1)
    while (passed := (time.time() - start) / (a.minutes * 60)) < 1:
        x, at = (t.to(device, non_blocking=True) for t in next(loader)[:2])
        h, target = choices(x[:, :-1], at)
        with measure.autocast(device):
            loss = sum(F.cross_entropy(net.logits(o[:, :-k - 1]).float().flatten(0, 1), target[:, k + 1:].flatten()) * 0.8 ** k
                       for k, o in enumerate(medusa(h)))
        loss.backward()
        adam.param_groups[0]["lr"] = 2e-3 * rate_at(passed, step)
        adam.step()
        adam.zero_grad(set_to_none=True)
        step += 1
        if step % 50 == 0 or a.tiny: log(f"step {step} loss {loss.item():.3f}")
    hits, library = torch.zeros(MEDUSA_HEADS), Library(held, 5)
    for _ in range(16):
        h, target = choices(torch.tensor([0] + library(2047), device=device)[None])
        with torch.no_grad(), measure.autocast(device):
            for k, o in enumerate(medusa(h)):
                hits[k] += (net.logits(o[:, :-k - 1]).argmax(-1) == target[:, k + 1:]).float().mean().cpu() / 16
    os.makedirs(a.out, exist_ok=True)
    tensors = {f"medusa.{k}.{n}": p.detach().to(torch.float16).contiguous() for k, head in enumerate(medusa.heads)
               for n, p in head.named_parameters()}
    save_file(tensors, os.path.join(a.out, "medusa.safetensors"))
    return {"steps": step, "first choice right, by head": [round(x, 3) for x in hits.tolist()]}


def fit_duo(net, tokenizer, books, held, a, device):
    """DuoAttention (arXiv 2410.10819): a gate per KV head mixes full attention and streaming attention; the gates that can
    fall without moving the last hidden states of the answers belong to heads that need no long cache."""
    length = a.length
    gates = torch.ones(net.shape.layers, net.shape.kv_heads, device=device, requires_grad=True)
    adam = torch.optim.Adam([gates], lr=0.02)
    i, group = torch.arange(length, device=device), net.shape.heads // net.shape.kv_heads
    streaming = (i[:, None] >= i) & ((i < SINKS) | (i[:, None] - i < RECENT))
    for p in net.parameters(): p.requires_grad_(False)

    def mixed(x):
        cos, sin = net.rotations(i[None])
        h = net.embed_tokens(x).bfloat16()
        for layer, gate in zip(net.layers, gates):
            q, k, v = layer.self_attn.project(layer.input_layernorm(h), cos, sin)
            full = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            k, v = (t.repeat_interleave(group, 1) for t in (k, v))
            local = F.scaled_dot_product_attention(q, k, v, attn_mask=streaming)
            g = gate.repeat_interleave(group)[None, :, None, None].to(full.dtype)
            h = h + layer.self_attn.o_proj((g * full + (1 - g) * local).transpose(1, 2).flatten(2))
            h = h + layer.mlp(layer.post_attention_layernorm(h))
        return net.norm(h)
    maker, start, step = SampleMaker(tokenizer, a.seed, Library(books, a.seed)), time.time(), 0
    while (passed := (time.time() - start) / (a.minutes * 60)) < 1:
        s = maker.retrieval(length, kinds=["number", "hex", "lives", "keeps"], n_questions=16, unknown=0)
        x = torch.tensor(s.ids + [0] * (length - len(s.ids)), device=device)[None]
        at = torch.cat([torch.arange(b - 1, e - 1) for b, e, _ in s.spans]).to(device)
        with measure.autocast(device):
            with torch.no_grad(): wanted = net.hidden(x)[0, at].float()
            got = mixed(x)[0, at].float()
        drift = (got - wanted).square().mean()
        (drift + GATE_COST * gates.abs().mean()).backward()
        adam.param_groups[0]["lr"] = 0.02 * rate_at(passed, step)
        adam.step()
        adam.zero_grad(set_to_none=True)
        with torch.no_grad(): gates.clamp_(0, 1)
        step += 1
        if step % 50 == 0 or a.tiny: log(f"step {step} drift {drift.item():.4f} mean gate {gates.mean().item():.3f}")
    os.makedirs(a.out, exist_ok=True)
    table = [[round(g, 4) for g in row] for row in gates.tolist()]
    with open(os.path.join(a.out, "duo.json"), "w", encoding="utf-8") as f:
        json.dump({"format": "godwit.duo-gates.1", "sinks": SINKS, "recent": RECENT, "gates": table}, f, indent=1)
    return {"steps": step, "mean gate": round(gates.mean().item(), 3), "gates": table}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=("draft", "medusa", "duo"))
    ap.add_argument("--model", required=True)
    ap.add_argument("--corpus", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--minutes", type=float, default=2.5)
    ap.add_argument("--length", type=int, default=4096, help="of the texts that the gates are fitted on")
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--seed", type=int, default=3)
    ap.add_argument("--tiny", action="store_true", help="as little as shows that the code runs")
    a = ap.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(a.seed)
    tokenizer = Tokenizer.from_file(os.path.join(a.model, "tokenizer.json"))
    books = encode_books(tokenizer, read_books(a.corpus, "books-train*.txt.xz"))
    held = encode_books(tokenizer, read_books(a.corpus, "books-heldout.txt.xz"))
    net = load(a.model).to(device)
    log("books", len(books))
    if device.type == "cuda":
        sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                     SDPBackend.MATH], set_priority=True).__enter__()
    fit = {"draft": fit_draft, "medusa": fit_medusa, "duo": fit_duo}[a.what]
    log(json.dumps(fit(net, tokenizer, books, held, a, device)))


if __name__ == "__main__":
    main()
