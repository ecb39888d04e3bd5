#!/usr/bin/env python3
"""Reference perplexity of a Hugging Face model folder, computed by transformers in fp32.

    perplexity_reference.py MODEL_DIR TEXT [--window 2048] [--windows N] [--bos ID] [--threads N] [--json OUT]

Needs torch, transformers and tokenizers. TEXT is plain UTF-8 or an .xz of it.

Protocol. The whole text is tokenized at once by tokenizer.json, without special tokens, and cut into consecutive runs
of window - 1 tokens; a last, shorter run is dropped. Each run, preceded by BOS, is one forward pass of exactly `window`
tokens from an empty cache, and every one of its window - 1 tokens is predicted from BOS and the tokens before it.
The result is the mean of all negative log-likelihoods (nats) and its exponential. Weights are upcast to fp32, matrix
products and the log-softmax run in fp32, and sums are kept in fp64.
"""

import argparse
import json
import lzma
import math
import pathlib
import time

import tokenizers
import torch
import transformers


def read_text(path: pathlib.Path) -> str:
    data = path.read_bytes()
    return (lzma.decompress(data) if path.suffix == ".xz" else data).decode("utf-8")


def token_nll(model, ids: list[int]) -> torch.Tensor:
    """The negative log-likelihoods of ids[1:], each given everything before it, as fp64 [len(ids) - 1]."""
    tokens = torch.tensor([ids])
    hidden = model.base_model(tokens, use_cache=False).last_hidden_state[0, :-1]
    targets = tokens[0, 1:]
    parts = []
    for start in range(0, len(targets), 512):
        logits = model.lm_head(hidden[start : start + 512])
        parts.append(torch.nn.functional.cross_entropy(logits, targets[start : start + 512], reduction="none"))
    return torch.cat(parts).double()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--window", type=int, default=2048, help="tokens of a window, BOS included")
    parser.add_argument("--windows", type=int, default=0, help="only the first N windows (0: all)")
    parser.add_argument("--bos", type=int, help="id of BOS (default: bos_token_id of config.json)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="write the result and the mean NLL of each window here")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    tokenizer = tokenizers.Tokenizer.from_file(str(args.model / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    bos = model.config.bos_token_id if args.bos is None else args.bos
    ids = tokenizer.encode(read_text(args.text), add_special_tokens=False).ids
    run = args.window - 1
    available = len(ids) // run
    count = min(args.windows or available, available)
    print(f"{len(ids)} tokens, {available} windows of {args.window}, {count} evaluated", flush=True)

    means, total, start_time = [], 0.0, time.time()
    for i in range(count):
        nll = token_nll(model, [bos] + ids[i * run : (i + 1) * run])
        assert nll.numel() == run and bool(torch.isfinite(nll).all())
        total += float(nll.sum())
        means.append(float(nll.mean()))
        mean = total / ((i + 1) * run)
        print(f"window {i + 1}/{count} nll {means[-1]:.6f} mean {mean:.6f} ppl {math.exp(mean):.6f} "
              f"({time.time() - start_time:.0f} s)", flush=True)  # fmt: skip

    mean = total / (count * run)
    result = {
        "text_tokens": len(ids),
        "window": args.window,
        "windows": count,
        "predicted_tokens": count * run,
        "bos": bos,
        "mean_nll": mean,
        "perplexity": math.exp(mean),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
    }
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result | {"window_nll": means}, indent=1) + "\n")


if __name__ == "__main__":
    main()
