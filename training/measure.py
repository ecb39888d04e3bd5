"""What a model can do, measured on books it has not seen. An answer counts when every token of it is the arg-max, which
is the same as: greedy decoding writes exactly that answer."""
import torch
import torch.nn.functional as F

from corpus import Library
from samples import SampleMaker

LENGTHS = (64, 512, 2048, 8192, 32768, 131072)
TASKS = {  # name -> arguments of SampleMaker.retrieval
    "one needle": dict(kinds=["number"], n_facts=1),
    "number": dict(kinds=["number"]), "hex": dict(kinds=["hex"]), "lives": dict(kinds=["lives"]), "keeps": dict(kinds=["keeps"]),
    "reverse": dict(kinds=["reverse"]), "multi": dict(kinds=["multi"]), "chain 2": dict(kinds=["chain"], hops=2), "chain 4": dict(kinds=["chain"], hops=4),
    "variables 1": dict(kinds=["variables"], hops=1), "variables 2": dict(kinds=["variables"], hops=2),
    "names 2": dict(kinds=["names"], hops=2),
    "variables 4": dict(kinds=["variables"], hops=4), "sum 2": dict(kinds=["sum"], hops=2),
}


def autocast(device):
    return torch.autocast(device.type, torch.bfloat16)


def measures(function):
    """No gradients, and nothing compiled: every sample has a length of its own."""
    def run(*args, **kwargs):
        with torch.no_grad(), torch.compiler.set_stance("force_eager"): return function(*args, **kwargs)
    return run


@measures
def graded(net, samples):
    """For every span of every sample: (kind, whether greedy decoding writes it)."""
    out, device = [], net.embed_tokens.weight.device
    for s in samples:
        x = torch.tensor(s.ids, device=device)[None]
        with autocast(device): h = net.hidden(x)
        at = torch.cat([torch.arange(a - 1, b - 1) for a, b, _ in s.spans]).to(device)
        hit = (F.linear(h[0, at].float(), net.embed_tokens.weight.float()).argmax(-1) == x[0, at + 1]).tolist()
        i = 0
        for a, b, kind in s.spans:
            out.append((kind, all(hit[i:i + b - a])))
            i += b - a
    return out


def share(results, kind=None):
    hits = [ok for k, ok in results if kind is None or k == kind]
    return round(sum(hits) / len(hits), 3) if hits else None


def recall(net, tokenizer, books, length, task, questions=64, seed=7):
    """Share of right answers, over at least that many questions; None where the task does not fit the length."""
    maker = SampleMaker(tokenizer, f"{seed}-{length}-{task}", Library(books, seed))
    results, empty = [], 0
    while len(results) < questions and empty < 50:
        s = maker.retrieval(length, unknown=0, **TASKS[task])
        empty = 0 if s.spans else empty + 1
        if s.spans: results += graded(net, [s])
    return share(results)


def chat_accuracy(net, tokenizer, books, exchanges=300, held=False, seed=11):
    """Share of exactly right replies of each kind, and over all of them."""
    maker, results = SampleMaker(tokenizer, f"{seed}-{held}", Library(books, seed)), []
    while len(results) < exchanges:
        s = maker.chat(maker.r.choice((128, 512, 2048)), held)
        if len(s.ids) <= 2048: results += graded(net, [s])
    return {"all": share(results), **{k: share(results, k) for k in ("fact", "unknown", "talk", "noted")}}


def shots_accuracy(net, tokenizer, books, length, samples=8, seed=13):
    maker = SampleMaker(tokenizer, f"{seed}-{length}", Library(books, seed))
    return share(graded(net, [maker.shots(length) for _ in range(samples)]))


@measures
def prose_loss(net, books, length, samples=8, tail=1024):
    """Mean loss per token over the last `tail` tokens of slices of that length: what context is worth."""
    device, library, total = net.embed_tokens.weight.device, Library([b for b in books if len(b) > length] or books, 3), 0.0
    for _ in range(samples):
        x = torch.tensor([0] + library(length), device=device)[None]
        with autocast(device): h = net.hidden(x[:, :-1])
        y = x[0, 1:][-tail:]
        total += F.cross_entropy(F.linear(h[0, -tail:].float(), net.embed_tokens.weight.float()), y).item()
    return round(total / samples, 4)
