"""Books as tokens. A corpus folder holds `books-train*.txt.xz` and `books-heldout.txt.xz`: plain text, a NUL between books."""
import glob
import lzma
import os

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def read_books(folder, pattern):
    paths = sorted(glob.glob(os.path.join(folder, pattern)))
    if not paths: raise SystemExit(f"no {pattern} in {folder}: a corpus is described in training/README.md")
    books = []
    for p in paths:
        with lzma.open(p, "rt", encoding="utf-8") as f: books += [b for b in f.read().split("\0") if b]
    return books


def train_tokenizer(books, vocabulary=8192):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator((b[i:i + 100000] for b in books[::3] for i in range(0, len(b), 100000)),
                          trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False,
                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def encode_books(tokenizer, books):
    pieces, owner = [], []
    for n, b in enumerate(books):
        for i in range(0, len(b), 200000):
            pieces.append(b[i:i + 200000])
            owner.append(n)
    ids = [[] for _ in books]
    for n, e in zip(owner, tokenizer.encode_batch_fast(pieces, add_special_tokens=False)):
        ids[n].append(np.array(e.ids, dtype=np.uint16))
    return [np.concatenate(i) for i in ids]


class Library:
    """Slices of books, each book as likely as it is long."""

    def __init__(self, books, seed):
        self.books, self.rng = books, np.random.default_rng(seed)
        sizes = np.array([len(b) for b in books], dtype=np.float64)
        self.share = np.cumsum(sizes / sizes.sum())

    def __call__(self, n):
        out = []
        while n > 0:
            b = self.books[min(int(np.searchsorted(self.share, self.rng.random())), len(self.books) - 1)]
            at = int(self.rng.integers(max(1, len(b) - n)))
            out += b[at:at + n].tolist()
            n -= min(n, len(b) - at)
        return out
