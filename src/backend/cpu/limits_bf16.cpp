// The peaks of the units that multiply bf16 numbers.
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "backend/cpu/bf16_vectors.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/limits.h"
#include "backend/cpu/tiles.h"

namespace godwit {
namespace {

using cpu::AmxTiles;

GODWIT_BF16_BEGIN

// Twelve chains: enough for two units of latency 6; returns FLOP done.
double dot_chains(int rounds, float* sink) {
  constexpr int kChains = 12;
  const auto a = (__m512bh)_mm512_set1_epi16(0x3F00), b = (__m512bh)_mm512_set1_epi16(0x3A00);
  __m512 sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(*sink + static_cast<float>(i));
  for (int round = 0; round < rounds; ++round)
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  __m512 all = _mm512_setzero_ps();
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) all = _mm512_add_ps(all, sums[i]);
  *sink = _mm512_reduce_add_ps(all);
  return 4.0 * 16 * kChains * rounds;
}

GODWIT_BF16_END

constexpr double kTileFlops = 2.0 * 16 * 16 * 32;
constexpr cpu::TileShape kWholeTile{16, 64};
constexpr cpu::TileShapes kWholeTiles = {kWholeTile, kWholeTile, kWholeTile, kWholeTile,
                                         kWholeTile, kWholeTile, kWholeTile, kWholeTile};

template <class Tiles>
void dot_four(Tiles& tiles) {
  tiles.template dot_bf16<0, 4, 6>();
  tiles.template dot_bf16<1, 4, 7>();
  tiles.template dot_bf16<2, 5, 6>();
  tiles.template dot_bf16<3, 5, 7>();
}

template <class Tiles>
void load_four(Tiles& tiles, const std::byte* from) {
  tiles.template load<4>(from, 64);
  tiles.template load<6>(from + 1024, 64);
  tiles.template load<5>(from + 2048, 64);
  tiles.template load<7>(from + 3072, 64);
}

// Numbers of both signs between 1/128 and 1/64 in magnitude. The unit takes more power for those than for zeros, and
// where that is what limits it, runs a fifth slower.
Buffer numbers(size_t bytes) {
  Buffer memory = cpu::aligned_buffer(bytes);  // a row of a tile that lies across lines is two reads
  std::minstd_rand random(1);
  auto* words = reinterpret_cast<uint16_t*>(memory.data());
  for (size_t i = 0; i < bytes / sizeof(uint16_t); ++i) {
    const uint32_t bits = random() >> 8;
    words[i] = static_cast<uint16_t>(0x3C00 | (bits & 0x7F) | (bits & 0x80) << 8);
  }
  return memory;
}

double tile_chains(const std::byte* memory, int rounds) {
  AmxTiles tiles(kWholeTiles);
  load_four(tiles, memory);
  for (int round = 0; round < rounds; ++round) dot_four(tiles);
  return 4 * kTileFlops * rounds;
}

// As above, each tile loaded from `memory` before it is used.
double streamed_tiles(const std::byte* memory, size_t bytes, int rounds) {
  AmxTiles tiles(kWholeTiles);
  size_t at = 0;
  for (int round = 0; round < rounds; ++round) {
    load_four(tiles, memory + at);
    dot_four(tiles);
    at = at + 4096 < bytes ? at + 4096 : 0;
  }
  return 4 * kTileFlops * rounds;
}

template <class Work>
double on_every_thread(ThreadPool& pool, const Work& work) {
  std::vector<double> flops(static_cast<size_t>(pool.threads()));
  pool.parallel_for(pool.threads(), [&](int64_t i) { flops[static_cast<size_t>(i)] = work(); });
  double total = 0;
  for (double done : flops) total += done;
  return total;
}

}  // namespace

double bf16_dot_round(ThreadPool& pool) {
  return on_every_thread(pool, [] {
    float sink = 1;
    const double flops = dot_chains(2'000'000, &sink);
    asm volatile("" : : "r"(&sink) : "memory");  // keeps the compiler from dropping work whose result nobody wants
    return flops;
  });
}

double tile_round(ThreadPool& pool) {
  const Buffer memory = numbers(4096);
  return on_every_thread(pool, [&] { return tile_chains(memory.data(), 500'000); });
}

double streamed_tile_round(ThreadPool& pool) {
  constexpr size_t kBytes = size_t{1} << 20;
  const Buffer memory = numbers(kBytes);
  return on_every_thread(pool, [&] { return streamed_tiles(memory.data(), kBytes, 200'000); });
}

}  // namespace godwit
