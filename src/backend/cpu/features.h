// What this machine has beyond Highway's targets: dot products of 8-bit codes and of bf16 numbers, in AVX-512 and in
// tiles (AMX).
#pragma once

namespace godwit::cpu {

// As Highway's target wants it.
bool has_avx2();
// That, and VNNI in vectors of 256 bits without AVX-512.
bool has_avx_vnni();
// AVX-512 as Highway's AVX3 wants it; with VNNI; and with VBMI, VBMI2 and BF16.
bool has_avx512();
bool has_avx512_vnni();
bool has_avx512_bf16();
// That, and tiles of bf16 and 8 bits. The first call asks the kernel for permission to use tiles, which holds for the
// process.
bool has_amx();
// Cores differ in what they fetch ahead by themselves.
bool is_zen4();

}  // namespace godwit::cpu
