// Shares of a sequence, here in threads, together keep what one sequence keeps.
#include "kv/gathered_slots.h"

#include <barrier>
#include <thread>

#include <gtest/gtest.h>

#include "kv/retention.h"

namespace godwit {
namespace {

constexpr KvShape kShape{2, 2};
const KvFormat kFormat{.dtype = DType::kF16, .head_dim = 8, .page_tokens = 16};  // segments of 256

class Threads {
 public:
  explicit Threads(int count) : barrier_(count), told_(static_cast<size_t>(count)) {}

  struct Peer final : KvPeers {
    Peer(Threads& job, int number) : threads(job), me(number) {}
    int rank() const override { return me; }
    Status gather(const Status& well, std::span<const std::byte> mine,
                  std::vector<std::vector<std::byte>>& all) override {
      GODWIT_TRY(agree(well));
      return exchange(mine, all);
    }
    Status exchange(std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all) {
      threads.told_[static_cast<size_t>(me)] = {mine.begin(), mine.end()};
      threads.barrier_.arrive_and_wait();
      all = threads.told_;
      threads.barrier_.arrive_and_wait();
      return {};
    }
    Status agree(const Status& mine) override {
      std::vector<std::vector<std::byte>> all;
      const auto failed = static_cast<std::byte>(mine ? 0 : 1);
      GODWIT_TRY(exchange({&failed, 1}, all));
      for (const auto& one : all)
        if (one[0] != std::byte{0}) return errorf(ErrorCode::kExhausted, "one has failed");
      return {};
    }
    Threads& threads;
    const int me;
  };

 private:
  std::barrier<> barrier_;
  std::vector<std::vector<std::byte>> told_;
};

struct Steps {
  std::vector<int> tokens;  // of each
  int prompt_end = 0;       // the step that ends the prompt
};

using Positions = std::vector<std::vector<int32_t>>;  // of each head

Positions positions_of(const KvSequence& sequence) {
  Positions positions;
  for (int layer = 0; layer < kShape.layers; ++layer)
    for (int head = 0; head < kShape.kv_heads; ++head) {
      auto& list = positions.emplace_back();
      for (size_t i = 0; i < sequence.slots(layer, head); ++i) list.push_back(sequence.position(layer, head, i));
    }
  return positions;
}

// K and V of a token follow from its position.
void write(KvSequence& sequence, int32_t begin, int32_t end) {
  for (int layer = 0; layer < kShape.layers; ++layer) {
    std::vector<float> numbers;
    std::vector<KvSlot> slots;
    for (const KvShare::Run& run : sequence.share().runs(begin, end, kFormat.page_tokens))
      for (int32_t position = run.begin; position < run.end; ++position)
        for (int head = 0; head < kShape.kv_heads; ++head) {
          const size_t slot = sequence.slots_before(layer, head, position);
          std::vector<PageRef> refs;
          sequence.list_pages(layer, head, slot / 16, slot / 16 + 1, refs);
          slots.push_back({refs[0].page, static_cast<uint32_t>(slot % 16)});
          for (int i = 0; i < 8; ++i)
            numbers.push_back(static_cast<float>((position * 37 + i * 11 + layer * 5 + head) % 101) / 50 - 1);
        }
    if (slots.empty()) continue;
    const Tensor k(numbers.data(), DType::kF32, {static_cast<int64_t>(slots.size()) / 2, 2, 8});
    sequence.pool().backend().kv_write(
        {.format = kFormat, .slab = sequence.pool().slab(), .slots = slots, .k = k, .v = k});
  }
}

Positions run(const std::shared_ptr<const KvRetentionRules>& rules, const Steps& steps, KvShare share, KvPeers* peers,
              bool& sound) {
  auto backend = make_cpu_backend({.threads = 1, .simd = ""}).value();
  auto pool = KvPool::create(*backend, kFormat, size_t{8} << 20).value();
  KvSequence sequence(*pool, kShape, share);
  KvRetention retention(rules, sequence, peers);
  for (size_t i = 0; i < steps.tokens.size(); ++i) {
    sound = sound && retention.prepare(steps.tokens[i]).has_value();
    const int32_t begin = sequence.next_position();
    sound = sound && sequence.append(steps.tokens[i]);
    write(sequence, begin, sequence.next_position());
    sound = sound && retention.finish(steps.tokens[i], static_cast<int>(i) == steps.prompt_end).has_value();
    sound = sound && sequence.check_integrity().has_value() && pool->check_integrity().has_value();
  }
  return positions_of(sequence);
}

TEST(GatheredSlots, SharesKeepWhatOneSequenceKeeps) {
  const Steps steps{{500, 500, 500, 300, 1, 1, 1, 200}, 3};
  for (const char* policy : {"streaming", "random", "infinipot"})
    for (const char* budget : {"96", "25%", "300:split=head"})
      for (const char* trigger : {"prefill", "512", "200"}) {
        const auto rules =
            KvRetentionRules::make({.policy = policy, .budget = budget, .trigger = trigger, .prefill_chunk = 500},
                                   kShape, kFormat, 4)
                .value();
        bool sound = true;
        const Positions want = run(rules, steps, {}, nullptr, sound);
        EXPECT_TRUE(sound);
        EXPECT_LT(want[0].size(), 1100U);
        for (int ranks : {2, 3}) {
          Threads job(ranks);
          std::vector<Positions> parts(static_cast<size_t>(ranks));
          std::vector<char> well(static_cast<size_t>(ranks));
          std::vector<std::thread> threads;
          for (int rank = 0; rank < ranks; ++rank)
            threads.emplace_back([&, rank] {
              Threads::Peer peer(job, rank);
              bool all_well = true;
              parts[static_cast<size_t>(rank)] = run(rules, steps, {ranks, rank}, &peer, all_well);
              well[static_cast<size_t>(rank)] = all_well ? 1 : 0;
            });
          for (std::thread& thread : threads) thread.join();
          EXPECT_EQ(well, std::vector<char>(well.size(), 1));
          Positions together(want.size());
          for (const Positions& part : parts)
            for (size_t head = 0; head < part.size(); ++head)
              together[head].insert(together[head].end(), part[head].begin(), part[head].end());
          for (auto& list : together) std::sort(list.begin(), list.end());
          EXPECT_EQ(together, want) << policy << " " << budget << " " << trigger << " " << ranks;
        }
      }
}

TEST(GatheredSlots, WhatOneRankLacksAllHearOfAndGoOn) {
  constexpr int kRanks = 3;
  Threads job(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&job, rank] {
      Threads::Peer peer(job, rank);
      auto backend = make_cpu_backend({.threads = 1, .simd = ""}).value();
      auto pool = KvPool::create(*backend, kFormat, size_t{8} << 20).value();
      KvSequence sequence(*pool, kShape, KvShare{kRanks, rank});
      ASSERT_TRUE(sequence.append(700));
      const auto slots = GatheredSlots::gather(sequence, &peer).value();
      const auto spread = [&](const Status& well) {
        std::vector<float> numbers;  // of own slots, two each
        for (size_t i = 0; i < sequence.slots(0, 1); ++i)
          for (int column = 0; column < 2; ++column)
            numbers.push_back(static_cast<float>(sequence.position(0, 1, i) * 2 + column));
        const Status status = slots.spread(1, 2, well, {&numbers, 1});
        return std::pair(status, numbers);
      };
      EXPECT_FALSE(spread(rank == 1 ? Status(errorf(ErrorCode::kExhausted, "no room")) : Status()).first);
      const auto [status, numbers] = spread({});
      ASSERT_TRUE(status);
      ASSERT_EQ(numbers.size(), 1400U);
      for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], static_cast<float>(i));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(GatheredSlots, WhatNoRankSeesWholeIsRefusedByName) {
  const auto refusal = [](const char* policy, const KvFormat& format = kFormat) {
    const auto rules = KvRetentionRules::make({.policy = policy, .budget = "50%", .trigger = "", .prefill_chunk = 500},
                                              kShape, format, 4)
                           .value();
    const Status status = check_over_ranks(rules->method, rules->format, 2);
    return status ? std::string() : status.error().message;
  };
  KvFormat sealing = kFormat;
  sealing.seals = true;
  sealing.k_bits = sealing.v_bits = 8;
  for (const char* policy : {"streaming", "snapkv", "h2o", "chelsea"}) {
    EXPECT_EQ(refusal(policy), "");
    EXPECT_NE(refusal(policy, sealing).find("sealed"), std::string::npos);
  }
  EXPECT_NE(refusal("zipcache", sealing).find("demotes"), std::string::npos);
}

}  // namespace
}  // namespace godwit
