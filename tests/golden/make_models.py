#!/usr/bin/env python3
"""Makes the tiny golden models of every supported family, with their reference logits and greedy continuations.

    make_models.py OUT_DIR [NAME ...]        writes OUT_DIR/NAME/ for all, or the named, models

Needs torch, transformers 5, tokenizers, safetensors, sentencepiece and numpy; CPU only. OUT_DIR is tests/data/models
in this repository, whose README.md describes the files. The seed of a model is the first, counted from 1, whose
continuations have no near ties, no loops and no special tokens, so a run repeats itself.
"""

import json
import os
import pathlib
import shutil
import struct
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import safetensors.numpy
import safetensors.torch
import tokenizers
import torch
import transformers

import tiny_reference
import tiny_tokenizers
from tiny_specs import SPECS, Spec

MIN_MARGIN = 4e-3  # (first - second logit) / largest |logit|, over all greedy steps
MIN_ROUTER_GAP = 2e-4  # probability of the last expert chosen - of the first not chosen
MIN_ABLATION = 1e-2  # largest change of a logit / largest |logit| when a feature is changed
TOKENIZED_TEXT = "The godwit flies 11000 km, doesn't it?\n  Naïve 日本 🙂\tdone."
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where does the bird rest?"}]


def make_tokenizer(kind: str, add_bos: bool) -> tiny_tokenizers.TinyTokenizer:
    family, style = kind.split(":")
    if family == "sp":
        return tiny_tokenizers.make_sentencepiece(style)
    return tiny_tokenizers.make_byte_level(style, add_bos)


def write_json(path: pathlib.Path, value) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_safetensors(path: pathlib.Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Unlike the library's writer, keeps the order of the metadata, so that the file repeats byte for byte."""
    header, offset = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        dtype = {"int32": "I32", "float32": "F32"}[tensor.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t.tobytes() for t in tensors.values()))
    safetensors.numpy.load_file(path)


def full_config(spec: Spec, tokenizer: tiny_tokenizers.TinyTokenizer) -> dict:
    ids = {"bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos, "pad_token_id": tokenizer.pad}
    return spec.config | ids | {"torch_dtype": spec.storage, "use_cache": True, "vocab_size": tokenizer.vocab_size}


def build(config: dict, seed: int):
    """A model straight from a config.json's content, with random weights of the seed."""
    with tempfile.TemporaryDirectory() as folder:
        write_json(pathlib.Path(folder) / "config.json", config)
        parsed = transformers.AutoConfig.from_pretrained(folder)
    parsed._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(parsed, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    tiny_reference.randomize(model, seed)
    return model


def make_prompt(spec: Spec, tokenizer: tiny_tokenizers.TinyTokenizer, length: int) -> list[int]:
    ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.specials)
    ids = np.random.Generator(np.random.PCG64([length, len(ordinary)])).choice(ordinary, length).tolist()
    return ids if tokenizer.bos is None else [tokenizer.bos] + ids[1:]


def run_cases(spec: Spec, tokenizer, model) -> dict[str, tiny_reference.CaseResult]:
    return {
        case.name: tiny_reference.run_case(
            model, make_prompt(spec, tokenizer, case.prompt_tokens),
            case.context_tokens or case.prompt_tokens + case.greedy_tokens, case.greedy_tokens,
        )
        for case in spec.cases
    }  # fmt: skip


def search_seed(spec: Spec, tokenizer, config: dict):
    for seed in range(1, 1000):
        model = build(config, seed)
        routers = tiny_reference.RouterMargins(model)
        results = run_cases(spec, tokenizer, model)
        steps = [r for r in results.values() if r.greedy]
        if (
            routers.smallest >= MIN_ROUTER_GAP
            and all(r.margin >= MIN_MARGIN for r in steps)
            and all(tiny_reference.is_lively(r.greedy, tokenizer.specials) for r in steps)
        ):
            return seed, model, routers.smallest
    raise RuntimeError(f"no seed gives {spec.name} a clear greedy path")


def check_ablations(spec: Spec, tokenizer, config: dict, seed: int, results) -> list[float]:
    """Each ablation must move some logit of some case; returns the sizes of the changes."""
    changes = []
    for ablation in spec.ablations:
        other = run_cases(spec, tokenizer, build(config | ablation, seed))
        change = max(
            float(np.abs(other[name].logits - r.logits).max() / np.abs(r.logits).max()) for name, r in results.items()
        )
        assert change >= MIN_ABLATION, f"{spec.name}: {ablation} changes the logits by only {change}"
        changes.append(round(change, 4))
    return changes


def save_weights(spec: Spec, model, folder: pathlib.Path) -> None:
    """In the names and shapes of published checkpoints (save_pretrained splits experts and drops tied tensors)."""
    with tempfile.TemporaryDirectory() as temporary:
        model.save_pretrained(temporary)
        tensors = safetensors.torch.load_file(pathlib.Path(temporary) / "model.safetensors")
    dtype = getattr(torch, spec.storage)
    stored = {name: tensors[name].to(dtype).contiguous() for name in sorted(tensors)}
    for name, tensor in stored.items():
        assert torch.equal(tensor.float(), tensors[name].float()), f"{name} is not exact in {dtype}"
    if spec.shards == 1:
        safetensors.torch.save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names, total = list(stored), sum(t.nbytes for t in stored.values())
    shards, size = [[] for _ in range(spec.shards)], 0
    for name in names:
        shards[min(size * spec.shards // total, spec.shards - 1)].append(name)
        size += stored[name].nbytes
    weight_map = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{spec.shards:05d}.safetensors"
        safetensors.torch.save_file({n: stored[n] for n in shard}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    write_json(folder / "model.safetensors.index.json", index)


def save_text_files(spec: Spec, tokenizer, model, config: dict, folder: pathlib.Path) -> None:
    modern = json.loads(model.config.to_json_string())
    modern |= {"architectures": config["architectures"], "dtype": spec.storage}
    modern = {k: v for k, v in sorted(modern.items()) if not k.startswith("_")}
    write_json(folder / "config.json", modern if spec.v5_config else dict(sorted(config.items())))
    if not spec.v5_config:
        write_json(folder / "config_v5.json", modern)
    ids = {k: config[k] for k in ("bos_token_id", "eos_token_id", "pad_token_id") if config[k] is not None}
    write_json(folder / "generation_config.json", ids | {"transformers_version": transformers.__version__})
    (folder / "tokenizer.json").write_text(tokenizer.tokenizer_json, encoding="utf-8")
    tokenizer_config = dict(tokenizer.tokenizer_config)
    if spec.template_file:
        (folder / "chat_template.jinja").write_text(tokenizer_config.pop("chat_template"), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", tokenizer_config)


def tokenizer_goldens(folder: pathlib.Path) -> tuple[list[int], str]:
    ids = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TOKENIZED_TEXT).ids
    auto = transformers.AutoTokenizer.from_pretrained(folder)
    assert auto(TOKENIZED_TEXT).input_ids == ids, "transformers reads another tokenizer from the folder"
    return ids, auto.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)


def save_goldens(spec: Spec, results, metadata: dict, text_ids: list[int], folder: pathlib.Path) -> None:
    tensors = {"text_ids": np.array(text_ids, np.int32)}
    for name, r in results.items():
        tensors |= {
            f"{name}.prompt": np.array(r.prompt, np.int32),
            f"{name}.context": np.array([r.context], np.int32),
            f"{name}.positions": np.array(r.positions, np.int32),
            f"{name}.logits": r.logits.astype(np.float32),
        }
        if r.greedy:
            tensors[f"{name}.greedy"] = np.array(r.greedy, np.int32)
            tensors[f"{name}.final_logits"] = r.final_logits.astype(np.float32)
    write_safetensors(folder / "golden.safetensors", tensors, metadata)


def make(spec: Spec, out: pathlib.Path) -> None:
    tokenizer = make_tokenizer(spec.tokenizer, add_bos=spec.name.startswith("llama"))
    config = full_config(spec, tokenizer)
    seed, model, router_gap = search_seed(spec, tokenizer, config)
    folder = out / spec.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_weights(spec, model, folder)
    save_text_files(spec, tokenizer, model, config, folder)

    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    results = run_cases(spec, tokenizer, loaded)
    if not spec.v5_config:
        modern = build(json.loads((folder / "config_v5.json").read_text()), seed)
        for name, r in run_cases(spec, tokenizer, modern).items():
            assert np.array_equal(r.logits, results[name].logits), "config_v5.json means another model"
    changes = check_ablations(spec, tokenizer, config, seed, results)
    text_ids, chat_text = tokenizer_goldens(folder)
    steps = [r for r in results.values() if r.greedy]
    metadata = {
        "cases": ",".join(results),
        "seed": str(seed),
        "rms_norm_eps": repr(config["rms_norm_eps"]),
        "notes": spec.notes,
        "attention": "eager, float32",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
        "min_greedy_margin": f"{min(r.margin for r in steps):.3g}",
        "cached_vs_whole_error": f"{max(r.cache_error for r in steps):.3g}",
        "min_router_gap": f"{router_gap:.3g}",
        "ablations": json.dumps([[a, c] for a, c in zip(spec.ablations, changes)]),
        "text": TOKENIZED_TEXT,
        "chat_messages": json.dumps(CHAT),
        "chat_text": chat_text,
    }
    save_goldens(spec, results, metadata, text_ids, folder)
    size = sum(f.stat().st_size for f in folder.iterdir())
    scale = max(float(np.abs(r.logits).max()) for r in results.values())
    print(f"{spec.name}: seed {seed}, {size} bytes, margin {metadata['min_greedy_margin']}, cache error "
          f"{metadata['cached_vs_whole_error']}, router {metadata['min_router_gap']}, max |logit| {scale:.2f}, "
          f"ablations {changes}, distinct {[len(set(r.greedy)) for r in steps]}", flush=True)  # fmt: skip


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    wanted = sys.argv[2:] or [spec.name for spec in SPECS]
    unknown = set(wanted) - {spec.name for spec in SPECS}
    if unknown:
        sys.exit(f"unknown models: {', '.join(sorted(unknown))}")
    for spec in SPECS:
        if spec.name in wanted:
            make(spec, pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
