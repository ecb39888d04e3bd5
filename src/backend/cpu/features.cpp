#include "backend/cpu/features.h"

#include <hwy/targets.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace godwit::cpu {
namespace {

#if defined(__x86_64__) && defined(__linux__)

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf features_leaf(unsigned sub) {
  Leaf leaf;
  if (__get_cpuid_count(7, sub, &leaf.eax, &leaf.ebx, &leaf.ecx, &leaf.edx) == 0) return {};
  return leaf;
}

bool bit(unsigned word, int index) {
  return (word >> index & 1) != 0;
}

// Highway has checked that the system saves the wide registers.
bool detect_avx2() {
  return (hwy::SupportedTargets() & HWY_AVX2) != 0;
}

bool detect_avx_vnni() {
  constexpr int kAvxVnni = 4;
  return detect_avx2() && bit(features_leaf(1).eax, kAvxVnni);
}

bool detect_avx512() {
  return (hwy::SupportedTargets() & HWY_AVX3) != 0;
}

bool detect_avx512_vnni() {
  constexpr int kVnni = 11;
  return detect_avx512() && bit(features_leaf(0).ecx, kVnni);
}

bool detect_avx512_bf16() {
  constexpr int kVbmi = 1, kVbmi2 = 6, kBf16 = 5;
  const unsigned word = features_leaf(0).ecx;
  return detect_avx512_vnni() && bit(word, kVbmi) && bit(word, kVbmi2) && bit(features_leaf(1).eax, kBf16);
}

// Among those that have AVX-512.
bool detect_zen4() {
  constexpr unsigned kAuth = 0x68747541, kFamily = 0x19;  // AuthenticAMD; Zen 3, too
  Leaf who, which;
  if (__get_cpuid(0, &who.eax, &who.ebx, &who.ecx, &who.edx) == 0 || who.ebx != kAuth) return false;
  if (__get_cpuid(1, &which.eax, &which.ebx, &which.ecx, &which.edx) == 0) return false;
  return (which.eax >> 8 & 0xF) + (which.eax >> 20 & 0xFF) == kFamily;
}

bool detect_amx() {
  constexpr int kAmxBf16 = 22, kAmxTile = 24, kAmxInt8 = 25;
  const Leaf leaf = features_leaf(0);
  for (int feature : {kAmxBf16, kAmxTile, kAmxInt8})
    if (!bit(leaf.edx, feature)) return false;
  if (!detect_avx512_bf16()) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#else

bool detect_avx2() {
  return false;
}
bool detect_avx_vnni() {
  return false;
}
bool detect_avx512() {
  return false;
}
bool detect_avx512_vnni() {
  return false;
}
bool detect_avx512_bf16() {
  return false;
}
bool detect_zen4() {
  return false;
}
bool detect_amx() {
  return false;
}

#endif

}  // namespace

bool has_avx2() {
  static const bool has = detect_avx2();
  return has;
}

bool has_avx_vnni() {
  static const bool has = detect_avx_vnni();
  return has;
}

bool has_avx512() {
  static const bool has = detect_avx512();
  return has;
}

bool has_avx512_vnni() {
  static const bool has = detect_avx512_vnni();
  return has;
}

bool is_zen4() {
  static const bool is = detect_zen4();
  return is;
}

bool has_avx512_bf16() {
  static const bool has = detect_avx512_bf16();
  return has;
}

bool has_amx() {
  static const bool has = detect_amx();
  return has;
}

}  // namespace godwit::cpu
