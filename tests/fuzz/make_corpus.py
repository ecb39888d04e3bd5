"""Makes the seeds of the fuzzers for file formats: tests/fuzz/corpus/{gguf,safetensors,json,json_schema}.

Run from the repository root: python3 tests/fuzz/make_corpus.py
"""

import json
import pathlib
import struct

ROOT = pathlib.Path("tests/fuzz/corpus")


def save(folder: str, name: str, data: bytes | str) -> None:
    path = ROOT / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(items: list[tuple[str, int, bytes]], tensors: list[tuple[str, list[int], int, int]], version: int = 3,
         alignment: int = 32) -> bytes:
    """items: key, type, packed value. tensors: name, dimensions innermost first, type, bytes."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(items))
    for key, kind, value in items:
        out += text(key) + struct.pack("<I", kind) + value
    offset = 0
    for name, dims, kind, size in tensors:
        out += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        out += struct.pack("<IQ", kind, offset)
        offset += -(-size // alignment) * alignment
    out += bytes(-len(out) % alignment)
    return out + bytes(range(256)) * (offset // 256) + bytes(offset % 256)


def array(kind: int, items: list[bytes]) -> bytes:
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def gguf_seeds() -> None:
    scalars = [
        ("general.architecture", 8, text("llama")),
        ("a.u8", 0, b"\x01"), ("a.i8", 1, b"\xff"), ("a.u16", 2, b"\1\2"), ("a.i16", 3, b"\1\2"),
        ("a.u32", 4, struct.pack("<I", 7)), ("a.i32", 5, struct.pack("<i", -7)), ("a.f32", 6, struct.pack("<f", 0.5)),
        ("a.bool", 7, b"\1"), ("a.u64", 10, struct.pack("<Q", 7)), ("a.i64", 11, struct.pack("<q", -7)),
        ("a.f64", 12, struct.pack("<d", 0.5)),
    ]
    arrays = [
        ("tokens", 9, array(8, [text("a"), text(""), text("é")])),
        ("scores", 9, array(6, [struct.pack("<f", x) for x in (0.0, -1.0)])),
        ("types", 9, array(5, [struct.pack("<i", 1)])),
        ("flags", 9, array(7, [b"\0", b"\1"])),
        ("empty", 9, array(10, [])),
    ]
    aligned = ("general.alignment", 4, struct.pack("<I", 64))
    save("gguf", "empty", gguf([], []))
    save("gguf", "scalars", gguf(scalars, []))
    save("gguf", "arrays_v2", gguf(arrays, [], version=2))
    save("gguf", "tensors", gguf(scalars[:1], [("token_embd.weight", [4, 3], 0, 48), ("output.weight", [32, 2], 2, 36),
                                               ("blk.0.attn_q.weight", [256], 14, 210), ("scalar", [], 1, 2)]))
    save("gguf", "aligned", gguf([aligned], [("a", [5, 1, 2, 1], 30, 20), ("b", [3], 26, 12)], alignment=64))


def safetensors(header: dict, size: int) -> bytes:
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + bytes(size)


def safetensors_seeds() -> None:
    def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict:
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    save("safetensors", "empty", safetensors({}, 0))
    save("safetensors", "metadata", safetensors({"__metadata__": {"format": "pt"}, "w": tensor("F32", [2], 0, 8)}, 8))
    save("safetensors", "types", safetensors({
        "a": tensor("F32", [2, 3], 0, 24), "b": tensor("BF16", [3], 24, 30), "c": tensor("F16", [], 30, 32),
        "d": tensor("I32", [1, 1, 1, 1, 1], 32, 36), "e": tensor("I64", [0], 36, 36), "f": tensor("F8_E4M3", [4], 36, 40),
        "g": tensor("F4", [3], 40, 42)}, 42))
    save("safetensors", "index", json.dumps(
        {"metadata": {"total_size": 8}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}))


def json_seeds() -> None:
    save("json", "object", '{"a":[1,-2.5e3,true,null,"x\\u00e9\\n"],"b":{"c":{}}}')
    save("json", "nested", "[" * 70 + "]" * 70)
    save("json", "twice", '{"a":1,"a":[2]}')
    save("json", "broken", '{"a":\n[1,}')


def json_schema_seeds() -> None:
    object_ = {"type": "object", "properties": {"a": {"type": ["string", "null"], "maxLength": 3}, "b": {"const": [1]}},
               "required": ["b"], "additionalProperties": {"type": "boolean"}}
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}}
    numbers = {"type": "array", "prefixItems": [{"type": "integer", "minimum": -5, "exclusiveMaximum": 12}],
               "items": {"type": "number", "multipleOf": 0.25, "maximum": 9.5}, "minItems": 1, "maxItems": 3}
    strings = {"anyOf": [{"type": "string", "pattern": "^[a-c]+(x|\\d{2,3})?$"}, {"format": "date"}, {"enum": ["a", 1.5]}]}
    for name, schema in (("object", object_), ("tree", tree), ("numbers", numbers), ("strings", strings), ("any", {})):
        save("json_schema", name, json.dumps(schema).encode() + b"\0" + bytes(range(33, 126, 3)))


if __name__ == "__main__":
    gguf_seeds()
    safetensors_seeds()
    json_seeds()
    json_schema_seeds()
