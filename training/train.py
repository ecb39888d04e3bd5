"""Trains the built-in model on one GPU, in a fixed time.

    python3 train.py --corpus CORPUS --out OUT --minutes 24                 # from nothing
    python3 train.py --corpus CORPUS --out OUT --minutes 8 --from OLD       # goes on from a model in Hugging Face's layout

Every step mixes rows of several lengths; the phases move the mix from short to long, so that what short rows taught
(chats, chains, lists) is never left alone for long. Rows of 2K to 32K tokens are spread over all positions up to 131,072
by random gaps between pieces (positional skip-wise training, arXiv 2309.10400), so that the long distances are known
before the first row of that length, which costs thirty times as much.
"""
import argparse
import json
import os
import random
import time

import torch
from tokenizers import Tokenizer
from torch.nn.attention import SDPBackend, sdpa_kernel

import measure
from corpus import Library, encode_books, read_books, train_tokenizer
from net import Net, Shape, load, save, weighted_loss
from optim import Optimizer
from samples import SampleMaker

MICRO_TOKENS, MICROS = 65536, 4
LENGTHS = {128: 2, 512: 4, 2048: 4, 8192: 2, 32768: 2, 131072: 2}  # row length -> processes that make rows
SHARES = {  # row length -> what its samples are
    128: {"chat": 10, "retrieval": 8, "shots": 1, "prose": 4},
    512: {"chat": 8, "retrieval": 12, "shots": 1, "prose": 6},
    2048: {"chat": 4, "retrieval": 12, "shots": 1, "prose": 8},
    8192: {"retrieval": 5, "prose": 4},
    32768: {"retrieval": 6, "prose": 4},
    131072: {"retrieval": 9, "prose": 1},
}
# (share of the time, row length -> weight of a micro-batch of it)
FROM_NOTHING = [(0.40, {512: 2, 2048: 8}), (0.15, {128: 1, 512: 3, 2048: 4}), (0.15, {512: 1, 2048: 2, 8192: 3}),
                (0.15, {512: 1, 2048: 1, 8192: 2, 32768: 3}), (0.15, {512: 1, 2048: 1, 8192: 1, 32768: 1, 131072: 3})]
GOING_ON = [(0.35, {128: 1, 512: 4, 2048: 4, 8192: 1}), (0.25, {512: 2, 2048: 3, 8192: 4}),
            (0.18, {512: 1, 2048: 2, 8192: 2, 32768: 3}), (0.22, {512: 1, 2048: 1, 8192: 1, 32768: 1, 131072: 3})]


class Rows(torch.utils.data.IterableDataset):
    """Endless micro-batches of rows of one length: tokens, weights, positions."""

    def __init__(self, tokenizer, books, length, context, seed):
        self.tokenizer, self.books, self.length, self.context, self.seed = tokenizer, books, length, context, seed

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        seed = self.seed * 1000003 + self.length * 101 + (worker.id if worker else 0)
        torch.set_num_threads(1)
        maker, rows = SampleMaker(self.tokenizer, seed, Library(self.books, seed)), max(1, MICRO_TOKENS // self.length)
        while True:
            made = [maker.row(self.length + 1, SHARES[self.length]) for _ in range(rows)]
            yield (torch.tensor([s.ids for s in made]), torch.tensor([s.weights for s in made]),
                   torch.stack([spread(maker.r, self.length, self.context) for _ in made]))


def row_loader(tokenizer, books, length, context, workers, seed):
    return iter(torch.utils.data.DataLoader(Rows(tokenizer, books, length, context, seed), batch_size=None,
                                            num_workers=workers, pin_memory=workers > 0,
                                            prefetch_factor=4 if workers else None))


def spread(r, length, context):
    """Positions 0 … length - 1, or, for half of the middle-sized rows, with gaps up to the end of the context."""
    at = torch.arange(length)
    if not 2048 <= length < context or r.random() < 0.5: return at
    pieces = r.randint(1, 7)
    slack = int((context - length) * r.random() ** 0.5)
    cuts = sorted(r.randint(1, length - 1) for _ in range(pieces))
    gaps = sorted(r.randint(0, slack) for _ in range(pieces))
    for i, cut in enumerate(cuts): at[cut:] += gaps[i] - (gaps[i - 1] if i else 0)
    return at


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--corpus", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--from", dest="start", help="a model to go on from; its tokenizer is kept")
    ap.add_argument("--phases", help="JSON in place of the built-in phases: [[share, {\"length\": weight}], …]")
    ap.add_argument("--minutes", type=float, default=24)
    ap.add_argument("--peak", type=float, help="peak learning rate as a share of the full one (1, or 0.5 when going on)")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--tiny", action="store_true", help="a network of two narrow layers, to try the code")
    a = ap.parse_args()
    t0 = time.time()
    log = lambda *what: print(f"[{time.time() - t0:6.1f}]", *what, flush=True)
    random.seed(a.seed)
    torch.manual_seed(a.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    phases = GOING_ON if a.start else FROM_NOTHING
    if a.phases: phases = [(share, {int(k): w for k, w in mix.items()}) for share, mix in json.loads(a.phases)]

    books, held = read_books(a.corpus, "books-train*.txt.xz"), read_books(a.corpus, "books-heldout.txt.xz")
    log("books", len(books), len(held))
    tokenizer = Tokenizer.from_file(os.path.join(a.start, "tokenizer.json")) if a.start else train_tokenizer(books)
    books, held = encode_books(tokenizer, books), encode_books(tokenizer, held)
    log("tokens", sum(map(len, books)), sum(map(len, held)))
    net = load(a.start) if a.start else Net(Shape(layers=2, dim=64, heads=2, kv_heads=1, ffn=128) if a.tiny else Shape())
    net.to(device)
    log("parameters", sum(p.numel() for p in net.parameters()))

    optimizer = Optimizer(net, 3e-3)
    peak = a.peak or (0.5 if a.start else 1.0)

    loaders = {n: row_loader(tokenizer, books, n, net.shape.context, LENGTHS[n] if device.type == "cuda" else 0, a.seed)
               for n in sorted({n for _, mix in phases for n in mix})}
    loss_of = weighted_loss
    if device.type == "cuda":
        torch._dynamo.config.recompile_limit = 64
        for layer in net.layers: layer.compile(dynamic=False)
        loss_of = torch.compile(weighted_loss, dynamic=False)
        sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True).__enter__()

    start, budget, step, seen, report = time.time(), a.minutes * 60, 0, 0, {"phases": []}
    edge = 0.0
    for share, mix in phases:
        edge += share
        losses, waits, t1, n1 = {n: [] for n in mix}, 0.0, time.time(), seen
        while (passed := (time.time() - start) / budget) < edge:
            rate = peak * min(1.0, (step + 1) / 60) * (1.0 if passed < 0.4 else max(0.02, (1 - passed) / 0.6))
            total = 0.0
            for length in random.choices(list(mix), mix.values(), k=MICROS):
                t2 = time.time()
                x, w, at = (t.to(device, non_blocking=True) for t in next(loaders[length]))
                waits += time.time() - t2
                with measure.autocast(device):
                    loss = loss_of(net.hidden(x[:, :-1], at), net.embed_tokens.weight, x[:, 1:], w[:, 1:])
                loss.backward()
                weight = w[:, 1:].sum()
                total += weight
                losses[length].append((loss.detach(), weight))
                seen += at.numel()
            for p in net.parameters(): p.grad.div_(total)
            optimizer.step(rate)
            step += 1
            if step % 50 == 0 or a.tiny:
                mean = {n: round(float(sum(x for x, _ in v[-40:]) / sum(y for _, y in v[-40:])), 3) for n, v in losses.items() if v}
                log(f"step {step} rate {rate:.2f} tok/s {(seen - n1) / (time.time() - t1):.0f} waited {waits:.0f}s loss {mean}")
                waits, t1, n1 = 0.0, time.time(), seen
        longest = max(mix)
        quick = {"steps": step, "tokens": seen, "chat": measure.chat_accuracy(net, tokenizer, held, 150)}
        for n in (512, longest) if longest > 512 else (longest,):
            for task in ("number", "multi", "variables 2", "chain 2", "sum 2"):
                quick[f"{task} {n}"] = measure.recall(net, tokenizer, held, n, task, 48)
        report["phases"].append(quick)
        save(net, a.out, tokenizer)
        with open(os.path.join(a.out, "report.json"), "w", encoding="utf-8") as f: json.dump(report, f, indent=1)
        log("saved", a.out, json.dumps(quick))


if __name__ == "__main__":
    main()
