#!/usr/bin/env python3
"""Makes tests/data/quant/: what the `gguf` package says about quantized blocks.

Run: python3 tests/golden/make_quant_data.py   (needs numpy and gguf; the output is deterministic)

blocks.bin, little-endian, one record per type until the end of the file:
  u32 GGUF type id, u32 elements per block, u32 bytes per block, u32 blocks, the blocks, their values as f32
gaussian.bin: u32 number of values, the values as f32 (normal, deviation 1), then one record per type that gguf can quantize:
  u32 GGUF type id, f64 root mean square error of gguf's own quantization of these values
"""
import pathlib
import struct

import gguf
import numpy as np

OUT = pathlib.Path(__file__).resolve().parents[1] / "data" / "quant"
# Byte offsets of the f16 fields of a block.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
# Ordinary, negative, zero, minus zero, subnormal, smallest, largest.
SCALES = np.array([0x2C00, 0xA9A3, 0x0000, 0x8000, 0x0123, 0x0001, 0x7BFF], dtype=np.uint16)
MX_SCALES = [127, 120, 0, 1, 2, 252, 130]


def blocks_of(name, rng):
    qtype = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[qtype]
    count = 7 if elements == 256 else 14
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for i in range(count):
        if name == "MXFP4":
            blocks[i, 0] = MX_SCALES[i % len(MX_SCALES)]
        for n, offset in enumerate(HALVES[name]):
            blocks[i, offset : offset + 2] = SCALES[(i + 3 * n) % len(SCALES) : ][:1].view(np.uint8)
    return qtype, elements, size, blocks


def plain_blocks(name, rng):
    qtype = gguf.GGMLQuantizationType[name]
    size = gguf.GGML_QUANT_SIZES[qtype][1]
    values = np.concatenate([rng.normal(size=60), [0.0, -0.0, 1e-40, 6e4]]).astype(np.float32)
    return qtype, 1, size, gguf.quantize(values.reshape(1, -1), qtype).view(np.uint8).reshape(-1, size)


def main():
    rng = np.random.default_rng(20)
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / "blocks.bin", "wb") as file:
        for name in ["F32", "F16", "BF16", *HALVES]:
            make = blocks_of if name in HALVES else plain_blocks
            qtype, elements, size, blocks = make(name, rng)
            values = gguf.dequantize(blocks.reshape(1, -1), qtype).astype("<f4").reshape(-1)
            assert values.size == blocks.shape[0] * elements and np.isfinite(values).all(), name
            file.write(struct.pack("<4I", int(qtype), elements, size, blocks.shape[0]))
            file.write(blocks.tobytes())
            file.write(values.tobytes())

    values = rng.normal(size=4096).astype("<f4")
    with open(OUT / "gaussian.bin", "wb") as file:
        file.write(struct.pack("<I", values.size))
        file.write(values.tobytes())
        for name in ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"]:
            qtype = gguf.GGMLQuantizationType[name]
            again = gguf.dequantize(gguf.quantize(values.reshape(1, -1), qtype).view(np.uint8), qtype).reshape(-1)
            error = np.sqrt(np.mean((again.astype(np.float64) - values.astype(np.float64)) ** 2))
            file.write(struct.pack("<Id", int(qtype), error))


if __name__ == "__main__":
    main()
