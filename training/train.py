"""Trains the built-in model on one GPU, in a fixed time.

    python3 train.py --corpus CORPUS --out OUT --minutes 24                 # from nothing
    python3 train.py --corpus CORPUS --out OUT --minutes 8 --from OLD       # goes on from a model in Hugging Face's layout

Every step mixes rows of several lengths; the phases move the mix from short to long, so that what short rows taught
(chats, chains, lists) is never left alone for long. Rows of 2K to 32K tokens are spread over all positions up to 131,072
by random gaps between pieces (positional skip-wise training, arXiv 2309.10400), so that the long distances are known
before the first row of that length, which costs thirty times as much.

Language is taught by rows of plain prose alone. The books are few, so a model that goes on learning from them learns them
by heart: going on, it learns what --anchor (by default the model it starts from) would say, in place of the next word.
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
from net import Net, Shape, divergence, load, save, weighted_loss
from optim import Optimizer
from samples import SampleMaker

MICRO_TOKENS, MICROS = 65536, 4
# name -> (length, processes that make such rows, what their samples are)
ROWS = {
    "128": (128, 2, {"chat": 10, "retrieval": 8, "shots": 1}),
    "512": (512, 4, {"chat": 8, "retrieval": 12, "shots": 1}),
    "2048": (2048, 3, {"chat": 4, "retrieval": 12, "shots": 1}),
    "8192": (8192, 2, {"retrieval": 1}),
    "32768": (32768, 2, {"retrieval": 1}),
    "131072": (131072, 2, {"retrieval": 1}),
    "prose": (2048, 1, {"prose": 1}),
}
# (share of the time, name of rows -> weight of a micro-batch of them)
FROM_NOTHING = [(0.40, {"prose": 8, "512": 2}), (0.15, {"prose": 1, "128": 1, "512": 3, "2048": 4}),
                (0.15, {"prose": 1, "512": 1, "2048": 2, "8192": 3}),
                (0.15, {"prose": 1, "512": 1, "2048": 1, "8192": 2, "32768": 3}),
                (0.15, {"prose": 1, "512": 1, "2048": 1, "8192": 1, "32768": 1, "131072": 3})]
GOING_ON = [(0.36, {"prose": 2, "128": 0.7, "512": 4, "2048": 5}), (0.30, {"prose": 2, "512": 2, "2048": 3, "8192": 5}),
            (0.15, {"prose": 1, "512": 1, "2048": 2, "8192": 2, "32768": 3}),
            (0.19, {"prose": 1, "512": 1, "2048": 1, "8192": 1, "32768": 1, "131072": 3})]


class Rows(torch.utils.data.IterableDataset):
    """Endless micro-batches of rows of one name: tokens, positions, and where something is to be learnt (targets)."""

    def __init__(self, tokenizer, books, name, context, seed):
        self.tokenizer, self.books, self.name, self.context, self.seed = tokenizer, books, name, context, seed

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        seed = self.seed * 1000003 + list(ROWS).index(self.name) * 101 + (worker.id if worker else 0)
        length, _, shares = ROWS[self.name]
        torch.set_num_threads(1)
        maker, rows = SampleMaker(self.tokenizer, seed, Library(self.books, seed)), max(1, MICRO_TOKENS // length)
        while True:
            made = [maker.row(length + 1, shares) for _ in range(rows)]
            yield (torch.tensor([s.ids for s in made]), torch.stack([spread(maker.r, length, self.context) for _ in made]),
                   *targets([s.weights[1:] for s in made]))


def targets(weights, step=8192):
    """The places that have a weight, in a batch as one line, and the weights; filled up to a multiple of `step` with
    places of no weight. Four fifths of a long row are text without weight, and logits cost as much as three layers."""
    w = torch.tensor(weights).flatten()
    at = w.nonzero()[:, 0]
    at = torch.cat((at, at.new_zeros(-len(at) % step)))
    return at, torch.where(torch.arange(len(at)) < (w > 0).sum(), w[at], 0.0)


def row_loader(tokenizer, books, name, context, workers, seed):
    return iter(torch.utils.data.DataLoader(Rows(tokenizer, books, name, context, seed), batch_size=None,
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
    ap.add_argument("--anchor", help="the model whose language is kept, 'none' to learn the books' words (default: that of --from)")
    ap.add_argument("--phases", help="JSON in place of the built-in phases: [[share, {\"rows\": weight}], …]")
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
    if a.phases: phases = json.loads(a.phases)
    anchor = None if a.anchor == "none" else a.anchor or a.start

    books, held = read_books(a.corpus, "books-train*.txt.xz"), read_books(a.corpus, "books-heldout.txt.xz")
    log("books", len(books), len(held))
    tokenizer = Tokenizer.from_file(os.path.join(a.start, "tokenizer.json")) if a.start else train_tokenizer(books)
    books, held = encode_books(tokenizer, books), encode_books(tokenizer, held)
    log("tokens", sum(map(len, books)), sum(map(len, held)))
    net = load(a.start) if a.start else Net(Shape(layers=2, dim=64, heads=2, kv_heads=1, ffn=128) if a.tiny else Shape())
    net.to(device)
    log("parameters", sum(p.numel() for p in net.parameters()))

    teacher = load(anchor).to(device).requires_grad_(False) if anchor else None
    optimizer = Optimizer(net, 3e-3)
    peak = a.peak or (0.5 if a.start else 1.0)

    loaders = {n: row_loader(tokenizer, books, n, net.shape.context, ROWS[n][1] if device.type == "cuda" else 0, a.seed)
               for n in sorted({n for _, mix in phases for n in mix})}
    loss_of, distance = weighted_loss, divergence
    if device.type == "cuda":
        torch._dynamo.config.recompile_limit = 64
        for m in (net, teacher) if teacher else (net,):
            for layer in m.layers: layer.compile(dynamic=False)
        loss_of, distance = torch.compile(weighted_loss, dynamic=False), torch.compile(divergence, dynamic=False)
        sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True).__enter__()

    start, budget, step, seen, report = time.time(), a.minutes * 60, 0, 0, {"phases": []}
    edge = 0.0
    for share, mix in phases:
        edge += share
        losses, waits, t1, n1 = {n: [] for n in mix}, 0.0, time.time(), seen
        while (passed := (time.time() - start) / budget) < edge:
            rate = peak * min(1.0, (step + 1) / 60) * (1.0 if passed < 0.4 else max(0.02, (1 - passed) / 0.6))
            total = 0.0
            for name in random.choices(list(mix), mix.values(), k=MICROS):
                t2 = time.time()
                x, at, places, w = (t.to(device, non_blocking=True) for t in next(loaders[name]))
                waits += time.time() - t2
                with measure.autocast(device):
                    h = net.hidden(x[:, :-1], at)
                    if teacher and name == "prose":
                        with torch.no_grad(): taught = teacher.hidden(x[:, :-1], at)
                        loss = distance(h, net.embed_tokens.weight, taught, teacher.embed_tokens.weight)
                    else: loss = loss_of(h.flatten(0, 1)[places], net.embed_tokens.weight, x[:, 1:].flatten()[places], w)
                loss.backward()
                weight = w.sum()
                total += weight
                losses[name].append((loss.detach(), weight))
                seen += at.numel()
            for p in net.parameters(): p.grad.div_(total)
            optimizer.step(rate)
            step += 1
            if step % 50 == 0 or a.tiny:
                mean = {n: round(float(sum(x for x, _ in v[-40:]) / sum(y for _, y in v[-40:])), 3) for n, v in losses.items() if v}
                log(f"step {step} rate {rate:.2f} tok/s {(seen - n1) / (time.time() - t1):.0f} waited {waits:.0f}s loss {mean}")
                waits, t1, n1 = 0.0, time.time(), seen
        quick = {"steps": step, "tokens": seen, "chat": measure.chat_accuracy(net, tokenizer, held, 150),
                 "prose": measure.prose_loss(net, held, 2048)}
        for n in sorted({512, max(ROWS[n][0] for n in mix)}):
            for task in ("number", "reverse", "multi", "variables 2", "names 2", "chain 2", "sum 2"):
                quick[f"{task} {n}"] = measure.recall(net, tokenizer, held, n, task, 48)
        report["phases"].append(quick)
        save(net, a.out, tokenizer)
        with open(os.path.join(a.out, "report.json"), "w", encoding="utf-8") as f: json.dump(report, f, indent=1)
        log("saved", a.out, json.dumps(quick))


if __name__ == "__main__":
    main()
