"""godwit inspect: a model file's facts."""

import json

import pytest

from conftest import BUILTIN, MODELS

FACTS = {
    "file",
    "format",
    "family",
    "parameters",
    "weight_bytes",
    "context_length",
    "layers",
    "embedding_size",
    "heads",
    "kv_heads",
    "head_size",
    "feed_forward_size",
    "vocabulary",
    "kv_bytes_per_token_f16",
    "tensor_types",
}


def test_the_built_in_model_is_the_one_in_the_repository(godwit):
    builtin, file = godwit.json("inspect", "--tensors"), godwit.json("inspect", "--tensors", str(BUILTIN))
    assert builtin.pop("file") != file.pop("file")
    assert builtin == file
    assert builtin["format"] == "GGUF v3" and builtin["context_length"] == 131072
    assert builtin["kv_bytes_per_token_f16"] == 2 * 2 * builtin["layers"] * builtin["kv_heads"] * builtin["head_size"]


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3", "mixtral", "phi3"])
def test_a_folders_facts_are_its_config(godwit, name):
    config = json.loads((MODELS / name / "config.json").read_text())
    report = godwit.json("inspect", str(MODELS / name))
    assert FACTS <= set(report) and report["format"] == "safetensors" and report["family"] == name
    for ours, theirs in (
        ("layers", "num_hidden_layers"),
        ("embedding_size", "hidden_size"),
        ("vocabulary", "vocab_size"),
        ("heads", "num_attention_heads"),
        ("kv_heads", "num_key_value_heads"),
        ("context_length", "max_position_embeddings"),
    ):
        assert report[ours] == config[theirs], ours
    gguf = godwit.json("inspect", "-m", str(MODELS / f"{name}.gguf"))
    for fact in FACTS - {"file", "format", "family", "weight_bytes", "tensor_types", "parameters"}:
        assert gguf[fact] == report[fact], fact
    assert gguf["metadata"]["general.architecture"]


def test_tensors_add_up(godwit):
    report = godwit.json("inspect", "--tensors", str(MODELS / "llama.gguf"))
    total = 0
    for tensor in report["tensors"]:
        count = 1
        for size in tensor["shape"]:
            count *= size
        total += count
    assert total == report["parameters"]
    assert len(report["tensors"]) == sum(kind["tensors"] for kind in report["tensor_types"].values())
    assert report["weight_bytes"] == sum(kind["bytes"] for kind in report["tensor_types"].values())
    assert "tensors" not in godwit.json("inspect", str(MODELS / "llama.gguf"))


def test_text_says_what_json_says(godwit):
    text, report = godwit("inspect", str(MODELS / "llama.gguf")), godwit.json("inspect", str(MODELS / "llama.gguf"))
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in text.splitlines() if len(line.split()) > 1}
    for fact in ("family", "parameters", "layers", "context_length", "vocabulary"):
        assert shown[fact] == str(report[fact])
    assert "blk.0.attn_q.weight" in godwit("inspect", "--tensors", str(MODELS / "llama.gguf")) and "blk.0" not in text
