"""The table of training/README.md, on held-out books.

    python3 evaluate.py --model MODEL --corpus CORPUS [--draft DRAFT] [--json OUT]

The corpus folder holds books-heldout.txt.xz and wikitext2-test.txt.xz.
"""
import argparse
import json
import lzma
import math
import os
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import measure
from corpus import Library, encode_books, read_books
from net import load


@measure.measures
def perplexity(net, ids, window=2048):
    """Over non-overlapping windows, each opened by <|endoftext|>."""
    device, total, count = net.embed_tokens.weight.device, 0.0, 0
    for i in range(0, len(ids) - window + 1, window):
        x = torch.tensor([0] + ids[i:i + window], device=device)[None]
        with measure.autocast(device): h = net.hidden(x[:, :-1])
        total += F.cross_entropy(net.logits(h[0].float()), x[0, 1:], reduction="sum").item()
        count += window
    return math.exp(total / count)


@measure.measures
def acceptance(net, draft, books, length=2048, samples=16):
    """Share of positions of book text at which the draft's first choice is the model's."""
    device, library, hits = net.embed_tokens.weight.device, Library(books, 5), 0.0
    for _ in range(samples):
        x = torch.tensor([0] + library(length - 1), device=device)[None]
        with measure.autocast(device): a, b = (m.logits(m.hidden(x)).argmax(-1) for m in (net, draft))
        hits += (a == b).float().mean().item()
    return hits / samples


@measure.measures
def speculation(net, draft, books, prompt=256, tokens=128, samples=64):
    """Share of the tokens that the model writes greedily after book text which the draft, given all before, would have
    written too: how many of its guesses speculation keeps."""
    device, library = net.embed_tokens.weight.device, Library(books, 6)
    x = torch.tensor([[0] + library(prompt - 1) for _ in range(samples)], device=device)
    with measure.autocast(device):
        for _ in range(tokens): x = torch.cat((x, net.logits(net.hidden(x)[:, -1:]).argmax(-1)), 1)
        guesses = draft.logits(draft.hidden(x)).argmax(-1)
    return (guesses[:, prompt - 1:-1] == x[:, prompt:]).float().mean().item()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", required=True)
    ap.add_argument("--corpus", required=True)
    ap.add_argument("--draft")
    ap.add_argument("--json")
    ap.add_argument("--lengths", type=int, nargs="+", default=list(measure.LENGTHS))
    ap.add_argument("--questions", type=int, default=200, help="for each task and length (a quarter of it at 128K)")
    a = ap.parse_args()
    start = time.time()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net, tokenizer = load(a.model).to(device), Tokenizer.from_file(os.path.join(a.model, "tokenizer.json"))
    held = encode_books(tokenizer, read_books(a.corpus, "books-heldout.txt.xz"))
    out = {"recall": {}, "chat": measure.chat_accuracy(net, tokenizer, held, 300),
           "chat, new phrasing": measure.chat_accuracy(net, tokenizer, held, 300, held=True)}
    print("| task | " + " | ".join(map(str, a.lengths)) + " |\n" + "|---" * (1 + len(a.lengths)) + "|", flush=True)
    for task in measure.TASKS:
        row = {n: measure.recall(net, tokenizer, held, n, task, a.questions if n < 100000 else a.questions // 4) for n in a.lengths}
        out["recall"][task] = row
        print(f"| {task} | " + " | ".join("" if v is None else f"{v:.2f}" for v in row.values()) + " |", flush=True)
    out["many-shot lists"] = {n: measure.shots_accuracy(net, tokenizer, held, n) for n in a.lengths if n <= 8192}
    out["perplexity of held-out books"] = round(perplexity(net, [i for b in held for i in b[:40960].tolist()]), 3)
    with lzma.open(os.path.join(a.corpus, "wikitext2-test.txt.xz"), "rt", encoding="utf-8") as f:
        out["perplexity of WikiText-2"] = round(perplexity(net, tokenizer.encode(f.read(), add_special_tokens=False).ids), 3)
    out["prose loss by context"] = {n: measure.prose_loss(net, held, n, 4, min(n, 1024)) for n in a.lengths}
    if a.draft:
        draft = load(a.draft).to(device)
        out["draft acceptance on book text"] = round(acceptance(net, draft, held), 3)
        out["draft acceptance after book text"] = round(speculation(net, draft, held), 3)
    for k, v in out.items():
        if k != "recall": print(f"{k}: {v}")
    print(f"{time.time() - start:.0f} s")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f: json.dump(out, f, indent=1)


if __name__ == "__main__":
    main()
