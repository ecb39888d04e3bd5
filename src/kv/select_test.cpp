#include "kv/select.h"

#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "kv/policy.h"

namespace godwit {
namespace {

using Kept = std::vector<std::vector<uint32_t>>;

ScoredHead head(std::vector<float> scores, int32_t first_position = 0) {
  ScoredHead made{std::vector<int32_t>(scores.size()), std::move(scores)};
  std::iota(made.positions.begin(), made.positions.end(), first_position);
  return made;
}

Kept select(const std::vector<ScoredHead>& heads, KvShape shape, size_t slots,
            KvBudget::Split split = KvBudget::Split::kHead, std::vector<double> demands = {}, size_t granule = 1) {
  if (demands.empty()) demands.assign(static_cast<size_t>(shape.layers), 1);
  return select_slots(heads, shape, {slots, granule, split, demands});
}

TEST(KvSelect, KeepsTheBestAndOfEqualOnesTheNewer) {
  EXPECT_EQ(select({head({5, 1, 9, 1, 3})}, {1, 1}, 3), (Kept{{0, 2, 4}}));
  EXPECT_EQ(select({head({1, 1, 1, 1, 1})}, {1, 1}, 2), (Kept{{3, 4}}));
  EXPECT_EQ(select({head({kKeepSlot, 7, kKeepSlot, 8})}, {1, 1}, 3), (Kept{{0, 2, 3}}));
  EXPECT_EQ(select({head({3, kDropSlot, kDropSlot, 1})}, {1, 1}, 3), (Kept{{0, 3}}));
  EXPECT_EQ(select({head({NAN, -5, NAN, -6})}, {1, 1}, 3), (Kept{{1, 2, 3}}));
}

TEST(KvSelect, HeadsCompeteWhereTheSplitSaysSo) {
  std::vector<float> low(20, 0), high(20, 1);
  const std::vector<ScoredHead> heads = {head(low), head(high), head(low), head(low)};
  const Kept even = select(heads, {2, 2}, 10), layer = select(heads, {2, 2}, 10, KvBudget::Split::kLayer),
             all = select(heads, {2, 2}, 10, KvBudget::Split::kAll);
  auto sizes = [](const Kept& kept) {
    std::vector<size_t> list;
    for (const auto& each : kept) list.push_back(each.size());
    return list;
  };
  EXPECT_EQ(sizes(even), (std::vector<size_t>{10, 10, 10, 10}));
  EXPECT_EQ(sizes(layer), (std::vector<size_t>{2, 18, 10, 10}));
  EXPECT_EQ(sizes(all), (std::vector<size_t>{7, 20, 7, 6}));
}

TEST(KvSelect, LayersGetWhatTheyDemand) {
  const std::vector<ScoredHead> heads = {head(std::vector<float>(20, 0)), head(std::vector<float>(20, 0))};
  const Kept kept = select(heads, {2, 1}, 10, KvBudget::Split::kHead, {1, 3});
  EXPECT_EQ(kept[0].size(), 5U);
  EXPECT_EQ(kept[1].size(), 15U);
}

TEST(KvSelect, PagesAreRoundedDown) {
  const std::vector<ScoredHead> heads = {head(std::vector<float>(300, 0)), head(std::vector<float>(300, 1)),
                                         head(std::vector<float>(50, 0)), head(std::vector<float>(300, 0))};
  for (auto split : {KvBudget::Split::kHead, KvBudget::Split::kLayer, KvBudget::Split::kAll}) {
    size_t pages = 0;
    for (const auto& kept : select(heads, {2, 2}, 128, split, {}, 64)) {
      EXPECT_TRUE(kept.size() % 64 == 0 || kept.size() == 50 || kept.size() == 300) << kept.size();
      EXPECT_GT(kept.size(), 0U);
      pages += (kept.size() + 63) / 64;
    }
    EXPECT_LE(pages, 8U);
  }
}

TEST(KvDeal, SumsExactlyAndRespectsCaps) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const size_t n = 1 + random() % 6;
    std::vector<double> demands;
    std::vector<size_t> caps;
    for (size_t i = 0; i < n; ++i) {
      demands.push_back(random() % 4 == 0 ? 0 : static_cast<double>(random() % 1000) / 10);
      caps.push_back(random() % 50);
    }
    const size_t total = random() % 150, most = std::accumulate(caps.begin(), caps.end(), size_t{0});
    const auto parts = deal(total, demands, caps);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), size_t{0}), std::min(total, most));
    for (size_t i = 0; i < n; ++i) EXPECT_LE(parts[i], caps[i]);
  }
  const std::vector<double> demands = {1, 2, 1};
  const std::vector<size_t> roomy = {100, 100, 100}, tight = {100, 10, 100};
  EXPECT_EQ(deal(40, demands, roomy), (std::vector<size_t>{10, 20, 10}));
  EXPECT_EQ(deal(40, demands, tight), (std::vector<size_t>{15, 10, 15}));
}

}  // namespace
}  // namespace godwit
