"""Makes tests/data/io: small GGUF and safetensors files written by the reference Python packages.

Run from the repository root, in an environment with numpy, torch, gguf and safetensors:

    python tests/golden/make_io_data.py

The .json files beside them say what a reader must find: for every tensor its type, its shape and the FNV-1a hash
of its bytes.
"""

import json
import pathlib

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

OUT = pathlib.Path("tests/data/io")


def fnv1a(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def write_json(name: str, value: dict) -> None:
    (OUT / name).write_text(json.dumps(value, indent=1) + "\n")


def make_gguf(name: str, alignment: int | None) -> dict:
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(OUT / name, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_uint8("test.u8", 250)
    writer.add_int8("test.i8", -5)
    writer.add_uint16("test.u16", 65000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_float32("test.f32", 0.5)
    writer.add_uint64("test.u64", 2**63 + 1)
    writer.add_int64("test.i64", -(2**62))
    writer.add_float64("test.f64", 1e-300)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "Pfuhlschnepfe – 斑尾塍鷸 🪶")
    writer.add_array("test.strings", ["", "a", "é", "\u2581the"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.25, -1.5])
    writer.add_array("test.bools", [True, False, True])

    expected = {}

    def add(tensor: str, data: np.ndarray, kind: gguf.GGMLQuantizationType, shape: list[int]) -> None:
        plain = kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.I32)
        writer.add_tensor(tensor, data, raw_dtype=None if plain else kind)
        expected[tensor] = {"dtype": kind.name.lower(), "shape": shape, "fnv1a": fnv1a(data.tobytes())}

    kinds = gguf.GGMLQuantizationType
    add("plain.f32", rng.standard_normal((3, 5), dtype=np.float32), kinds.F32, [3, 5])
    add("plain.f16", rng.standard_normal((2, 3, 4, 5)).astype(np.float16), kinds.F16, [2, 3, 4, 5])
    add("plain.i32", np.arange(7, dtype=np.int32), kinds.I32, [7])
    for kind in (kinds.BF16, kinds.Q4_0, kinds.Q4_1, kinds.Q5_0, kinds.Q5_1, kinds.Q8_0):
        values = rng.standard_normal((3, 64), dtype=np.float32)
        add(f"block.{kind.name}", gguf.quants.quantize(values, kind), kind, [3, 64])
    for name_ in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"):
        kind = kinds[name_]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = 512 // elements
        data = rng.integers(0, 256, (2, blocks * size), dtype=np.uint8)
        add(f"block.{name_}", data, kind, [2, 512])

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32"}


def expect(tensors: dict[str, torch.Tensor]) -> dict:
    return {
        name: {
            "dtype": NAMES[t.dtype],
            "shape": list(t.shape) or [1],
            "fnv1a": fnv1a(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()),
        }
        for name, t in tensors.items()
        if t.dtype in NAMES
    }


def make_safetensors() -> None:
    torch.manual_seed(7)
    tensors = {
        "a.f32": torch.randn(3, 5),
        "b.f16": torch.randn(2, 3, 4).to(torch.float16),
        "c.bf16": torch.randn(5, 7).to(torch.bfloat16),
        "d.i32": torch.arange(6, dtype=torch.int32).reshape(2, 3),
        "e.scalar": torch.tensor(1.5),
        "f.five": torch.randn(2, 1, 2, 1, 2),
        "g.empty": torch.empty(0, 4),
        "h.i64": torch.arange(3),
        "i.u8": torch.arange(5, dtype=torch.uint8),
        "j.bool": torch.tensor([True, False]),
        "k.f8": torch.randn(8).to(torch.float8_e4m3fn),
        "l.f64": torch.randn(2, dtype=torch.float64),
    }
    save_file(tensors, OUT / "types.safetensors", metadata={"format": "pt", "note": "é"})
    write_json("types_safetensors.json", expect(tensors))

    folder = OUT / "sharded"
    folder.mkdir(exist_ok=True)
    shards = [
        {"embed.weight": torch.randn(6, 4).to(torch.bfloat16), "layer.0.weight": torch.randn(4, 4)},
        {"layer.1.weight": torch.randn(4, 4), "norm.weight": torch.ones(4)},
    ]
    weight_map = {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        weight_map |= {tensor: name for tensor in shard}
    index = {"metadata": {"total_size": 208}, "weight_map": weight_map}
    write_json("sharded/model.safetensors.index.json", index)
    config = {"model_type": "llama", "hidden_size": 4, "rope_scaling": None, "rms_norm_eps": 1e-5}
    write_json("sharded/config.json", config)
    write_json("sharded.json", expect(shards[0] | shards[1]))


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    types = make_gguf("types.gguf", None)
    aligned = make_gguf("aligned.gguf", 256)
    assert types == aligned
    write_json("types_gguf.json", types)
    make_safetensors()
    for path in OUT.rglob("*.safetensors"):
        path.chmod(0o644)
