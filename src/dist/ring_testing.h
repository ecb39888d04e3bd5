// For tests: ranks as threads, each with a back-end, pages and one sequence, and the same steps on one rank.
#pragma once

#include <thread>

#include <gtest/gtest.h>

#include "attn/dense.h"
#include "dist/local_link.h"
#include "dist/ring_attention.h"

namespace godwit::dist::testing {

template <class T>
T value_of(Result<T> result) {
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return std::move(result).value();
}

struct RingCase {
  int ranks = 2, heads = 4, kv_heads = 1, head_dim = 32, layers = 2;
  int32_t window = 0;
  int max_rows = 1024;
  KvFormat format = {DType::kF16, 32, 16};
  RingOptions options = {};
  int first = 0;   // rank at which the sequence begins
  int degree = 0;  // ranks that take part; 0: all
  Shares shares = {};
  bool shared = false;  // pages lie in memory that the ranks share ...
  int hides = -1;       // ... except this one's
  int idle = -1;        // the rank that leaves its rows to the others
};

struct RingStep {
  Stretch run;
  RingMode mode = RingMode::kPassKv;
};

// Numbers of a token that look like nothing in particular.
inline void fill(std::vector<float>& numbers, uint32_t seed) {
  for (float& number : numbers) {
    seed = seed * 1664525 + 1013904223;
    number = static_cast<float>(static_cast<int32_t>(seed) >> 8) / static_cast<float>(1 << 22);
  }
}

using Outputs = std::vector<std::vector<float>>;  // by position: out of all layers, then LSEs

// The engine's part of a rank: memory, activations, and the layers of a step.
class RingRank {
 public:
  explicit RingRank(const RingCase& c, KvShare share = {}) : case_(c) {
    backend_ = value_of(make_cpu_backend({.threads = 1, .simd = ""}));
    KvPool::SlabMemory slab_memory;
    if (c.shared)
      slab_memory = [&](size_t bytes) {
        memory = value_of(SharedMemory::create(bytes));
        return backend_->import_host(memory->memory(), {memory->memory().get(), bytes});
      };
    pool_ = value_of(KvPool::create(*backend_, c.format, size_t{64} << 20, slab_memory,
                                    RingAttention::spare_pages(c.ranks, c.kv_heads, {&c.format, 1})));
    sequence_ = std::make_unique<KvSequence>(*pool_, KvShape{c.layers, c.kv_heads}, share);
  }

  std::optional<SharedMemory> memory;
  KvPool& pool() { return *pool_; }
  KvSequence& sequence() { return *sequence_; }

  // Runs the rows of `runs` through every layer; `ring` is null on one rank.
  void layers(RingAttention* ring, const std::vector<Stretch>& runs, Outputs& outputs) {
    const int32_t rows = size_of(runs);
    const auto q_width = static_cast<size_t>(case_.heads * case_.head_dim);
    const auto kv_width = static_cast<size_t>(case_.kv_heads * case_.head_dim);
    std::vector<int32_t> positions;
    for (const Stretch& run : runs)
      for (int32_t position = run.begin; position < run.end; ++position) positions.push_back(position);
    for (int layer = 0; layer < case_.layers; ++layer) {
      std::vector<float> q(static_cast<size_t>(rows) * q_width), k(static_cast<size_t>(rows) * kv_width), v = k,
                                                                                                          out = q;
      std::vector<float> lse(static_cast<size_t>(rows * case_.heads), -7.0f), line(q_width);
      for (size_t row = 0; row < positions.size(); ++row) {
        const auto seed = static_cast<uint32_t>(positions[row] * 31 + layer * 7 + 1);
        fill(line, seed);
        std::copy_n(line.begin(), q_width, q.begin() + static_cast<long>(row * q_width));
        fill(line, seed ^ 0x5555);
        std::copy_n(line.begin(), kv_width, k.begin() + static_cast<long>(row * kv_width));
        fill(line, seed ^ 0x3333);
        std::copy_n(line.begin(), kv_width, v.begin() + static_cast<long>(row * kv_width));
      }
      LayerCall call;
      call.layer = layer;
      call.q = Tensor(q.data(), DType::kF32, {rows, case_.heads, case_.head_dim});
      call.k = Tensor(k.data(), DType::kF32, {rows, case_.kv_heads, case_.head_dim});
      call.v = Tensor(v.data(), DType::kF32, {rows, case_.kv_heads, case_.head_dim});
      call.positions = Tensor(positions.data(), DType::kI32, {rows});
      call.scale = 0.2f;
      call.window = case_.window;
      call.partial = {Tensor(out.data(), DType::kF32, {rows, case_.heads, case_.head_dim}),
                      Tensor(lse.data(), DType::kF32, {rows, case_.heads})};
      if (ring != nullptr) {
        ring->attend(call);
      } else {
        attend_alone(call, positions.front());
      }
      for (size_t row = 0; row < positions.size(); ++row) {
        auto& to = outputs[static_cast<size_t>(positions[row])];
        to.insert(to.end(), out.begin() + static_cast<long>(row * q_width),
                  out.begin() + static_cast<long>((row + 1) * q_width));
        to.insert(to.end(), lse.begin() + static_cast<long>(row) * case_.heads,
                  lse.begin() + static_cast<long>(row + 1) * case_.heads);
      }
    }
  }

 private:
  void attend_alone(const LayerCall& call, int32_t first_position) {
    const auto rows = static_cast<int32_t>(call.q.shape[0]);
    std::vector<KvSlot> slots;
    sequence_->tail_slots(call.layer, rows, slots);
    backend_->kv_write({.format = pool_->format(),
                        .slab = pool_->slab(),
                        .slots = slots,
                        .k = call.k,
                        .v = call.v,
                        .open_slab = pool_->open_slab()});
    std::vector<KvSeal> seals;
    sequence_->list_seals(call.layer, seals);
    if (!seals.empty())
      backend_->kv_seal(
          {.format = pool_->format(), .open_slab = pool_->open_slab(), .slab = pool_->slab(), .pages = seals});
    const AttentionSegment segment{sequence_.get(), 0, rows, first_position, 0};
    const AttentionPlan plan = dense_plan({call.layer, call.window, {&segment, 1}});
    AttentionArgs args;
    args.format = pool_->format();
    args.slab = pool_->slab();
    args.open_slab = pool_->open_slab();
    args.plan = &plan;
    args.q = call.q;
    args.positions = call.positions;
    args.kv_heads = case_.kv_heads;
    args.scale = call.scale;
    args.window = call.window;
    args.partial = call.partial;
    backend_->attention(args);
  }

  RingCase case_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<KvSequence> sequence_;
};

inline Outputs alone(const RingCase& c, const std::vector<RingStep>& steps) {
  RingRank rank(c);
  Outputs outputs(static_cast<size_t>(steps.back().run.end));
  for (const RingStep& step : steps) {
    EXPECT_TRUE(rank.sequence().append(step.run.size(), step.run.begin));
    rank.layers(nullptr, {step.run}, outputs);
    rank.sequence().settle();
  }
  return outputs;
}

struct RingRun {
  Outputs outputs;
  std::vector<Status> statuses;
  std::vector<size_t> kept_slots;                         // of each rank, in head 0 of layer 0
  std::vector<std::array<Traffic, kFrameKinds>> traffic;  // of each rank
  std::vector<RingTimes> times;
};

// Called on a rank's thread before a step; for faults.
using BeforeStep = std::function<void(int rank, size_t step, Transport& transport)>;

inline RingRun together(const RingCase& c, const std::vector<RingStep>& steps, const TransportOptions& options = {},
                        LocalFaults faults = {}, const BeforeStep& before = {}) {
  const auto count = static_cast<size_t>(c.ranks);
  auto links = make_local_links(c.ranks, std::move(faults));
  RingRun run;
  run.statuses.resize(count);
  run.kept_slots.resize(count);
  run.traffic.resize(count);
  run.times.resize(count);
  std::vector<Outputs> parts(count, Outputs(static_cast<size_t>(steps.back().run.end)));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      Transport transport(std::move(links[i]), options);
      if (run.statuses[i] = transport.join(); !run.statuses[i]) return;
      RingRank rank(
          c,
          Shards(c.ranks, c.format.page_tokens, c.first, c.degree > 0 ? c.degree : c.ranks).share(static_cast<int>(i)));
      RingOptions ring_options = c.options;
      ring_options.leaves_rows = static_cast<int>(i) == c.idle;
      auto ring = value_of(RingAttention::create(
          transport, rank.pool(), {c.heads, c.kv_heads, c.head_dim, c.max_rows, c.layers}, ring_options,
          c.shared ? value_of(share(transport, static_cast<int>(i) == c.hides ? nullptr : &*rank.memory,
                                    c.format.page_bytes()))
                   : SharedView()));
      for (size_t s = 0; s < steps.size(); ++s) {
        if (before) before(static_cast<int>(i), s, transport);
        const Stretch step = steps[s].run;
        EXPECT_TRUE(rank.sequence().append(step.size()));
        const RingPart part{&rank.sequence(), step, steps[s].mode, c.first, c.degree > 0 ? c.degree : c.ranks};
        ring->begin({&part, 1}, c.shares);
        rank.layers(ring.get(), ring->rows(0, static_cast<int>(i)), parts[i]);
        if (run.statuses[i] = ring->status(); !run.statuses[i]) return;
        if (ring->reads_shared()) run.statuses[i] = transport.barrier();
        ring->end();
        rank.sequence().settle();
      }
      run.kept_slots[i] = rank.sequence().slots(0, 0);
      run.times[i] = ring->times();
      for (size_t kind = 0; kind < kFrameKinds; ++kind)
        run.traffic[i][kind] = transport.traffic(static_cast<FrameKind>(kind));
      EXPECT_TRUE(rank.sequence().check_integrity());
    });
  }
  for (std::thread& thread : threads) thread.join();
  run.outputs.resize(static_cast<size_t>(steps.back().run.end));
  for (size_t position = 0; position < run.outputs.size(); ++position)
    for (Outputs& part : parts)
      run.outputs[position].insert(run.outputs[position].end(), part[position].begin(), part[position].end());
  return run;
}

inline void expect_all_well(const RingRun& run) {
  for (const Status& status : run.statuses) ASSERT_TRUE(status.has_value()) << status.error().message;
}

}  // namespace godwit::dist::testing
