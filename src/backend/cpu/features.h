// What this machine has beyond Highway's targets: dot products of bf16 numbers, in AVX-512 and in tiles (AMX).
#pragma once

namespace godwit::cpu {

// AVX-512 as Highway's AVX3 wants it, with VBMI, VBMI2, VNNI and BF16.
bool has_avx512_bf16();
// That, and tiles of bf16 and 8 bits. The first call asks the kernel for permission to use tiles, which holds for the
// process.
bool has_amx();

}  // namespace godwit::cpu
