#!/usr/bin/env python3
"""Makes the GGUF twins of the tiny golden models with llama.cpp's own converter, independent of our writer.

    make_gguf.py LLAMA_CPP_DIR MODELS_DIR [NAME ...]      writes MODELS_DIR/NAME.gguf from MODELS_DIR/NAME/

LLAMA_CPP_DIR is a checkout of github.com/ggml-org/llama.cpp; its requirements, and those of make_models.py, must be
installed. The converter knows published tokenizers by a hash; here the split pattern is told to it instead. After the
conversion the weights are read back and compared with the model's as a set of values, whatever their order.
"""

import json
import math
import pathlib
import shutil
import sys
import tempfile
from unittest import mock

import numpy as np
import safetensors.torch
import torch

from make_models import make_tokenizer, write_json
from tiny_specs import SPECS, Spec

# GGUF can't say these: dynamic scaling, mscale of YaRN, a window on some layers of Qwen 2, unnormalized router weights.
WITHOUT_TWIN = {"llama-dynamic", "llama-yarn-mscale", "qwen2-window", "qwen3-moe-mixed"}


def load_tensors(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors |= safetensors.torch.load_file(file)
    return tensors


def stage(spec: Spec, source: pathlib.Path, folder: pathlib.Path) -> None:
    """A copy of the model for the converter: with tokenizer.model, and without what GGUF has no field for."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("golden.safetensors", "config_v5.json"))
    tokenizer = make_tokenizer(spec.tokenizer, add_bos=spec.name.startswith("llama"))
    if tokenizer.sentencepiece_model:
        (folder / "tokenizer.model").write_bytes(tokenizer.sentencepiece_model)
    elif spec.name.startswith("phi3"):  # how the converter recognizes a byte-level Phi tokenizer
        path = folder / "tokenizer_config.json"
        write_json(path, json.loads(path.read_text()) | {"tokenizer_class": "GPT2Tokenizer"})
    if spec.name == "gemma2":
        # GGUF implies an attention scale of 1/sqrt(head_dim): the rest, a power of two, goes exactly into Q.
        config = json.loads((folder / "config.json").read_text())
        scale = math.sqrt(config["head_dim"] / config["query_pre_attn_scalar"])
        assert math.log2(scale).is_integer()
        tensors = load_tensors(folder)
        for name in tensors:
            if name.endswith("q_proj.weight"):
                tensors[name] = tensors[name] * scale
        safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        write_json(folder / "config.json", config | {"query_pre_attn_scalar": config["head_dim"]})


def convert(llama_cpp: pathlib.Path, spec: Spec, folder: pathlib.Path, out: pathlib.Path) -> None:
    sys.path[:0] = [path for path in (str(llama_cpp), str(llama_cpp / "gguf-py")) if path not in sys.path]
    import convert_hf_to_gguf
    from conversion.base import TextModel
    from conversion.llama import LlamaModel

    plain_parameters = LlamaModel.set_gguf_parameters

    def parameters_with_window(model) -> None:
        """The converter leaves Mistral's window out, though GGUF has a key for it."""
        plain_parameters(model)
        if model.hparams.get("sliding_window") is not None:
            model.gguf_writer.add_sliding_window(model.hparams["sliding_window"])

    outtype = {"float32": "f32", "float16": "f16"}.get(spec.storage, "bf16")
    sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(out), "--outtype", outtype]
    sys.argv += ["--model-name", f"tiny {spec.name}"]
    with (
        mock.patch.object(TextModel, "get_vocab_base_pre", lambda _self, _tokenizer: spec.tokenizer.split(":")[1]),
        mock.patch.object(LlamaModel, "set_gguf_parameters", parameters_with_window),
    ):
        convert_hf_to_gguf.main()


def check(spec: Spec, folder: pathlib.Path, out: pathlib.Path) -> None:
    """The file holds the same values bit for bit; rotary rows are in another order, Gemma's norms have one added."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    def fingerprint(values) -> np.ndarray:
        return np.sort(np.asarray(values, np.float32).ravel())

    tensors = load_tensors(folder)
    if spec.config["model_type"].startswith("gemma"):
        tensors = {n: (t.float() + 1 if n.endswith("norm.weight") else t) for n, t in tensors.items()}
    expected = fingerprint(torch.cat([t.float().ravel() for t in tensors.values()]))
    stored = [t for t in GGUFReader(out).tensors if not t.name.startswith("rope_")]
    actual = fingerprint(np.concatenate([dequantize(t.data, t.tensor_type).ravel() for t in stored]))
    assert np.array_equal(expected, actual), f"{out.name} differs from the model"


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    llama_cpp, models = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    wanted = sys.argv[3:] or [spec.name for spec in SPECS if spec.name not in WITHOUT_TWIN]
    for spec in (spec for spec in SPECS if spec.name in wanted):
        out = models / f"{spec.name}.gguf"
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary) / spec.name
            stage(spec, models / spec.name, folder)
            convert(llama_cpp, spec, folder, out)
            check(spec, folder, out)
        print(f"{out.name}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
