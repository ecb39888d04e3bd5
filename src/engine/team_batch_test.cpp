// Many sequences in one step over ranks, here threads: messages do not grow in number with them, and bits stay.
#include <gtest/gtest.h>

#include "engine/ranks_probe.h"
#include "engine/test_ranks.h"

namespace godwit {
namespace {

using namespace engine_test;

struct Batch {
  std::vector<std::vector<float>> logits;       // of each sequence's last token
  dist::Traffic slots, pages, queries, states;  // of all ranks, for that token
};

// Reads a prompt in each sequence, one after the other, and then a token in all of them at once: as one that was given,
// not sampled, so that its numbers are those of Session::read().
Batch decode(Team& team, const std::vector<std::vector<TokenId>>& prompts) {
  std::vector<std::unique_ptr<KvSequence>> sequences;
  std::vector<uint64_t> ids;
  const TokenId next = 17;
  Batch batch;
  for (const auto& tokens : prompts) {
    sequences.push_back(team.next_share());
    ids.push_back(team.create(*sequences.back()));
    const auto count = static_cast<int32_t>(tokens.size());
    for (int32_t at = 0; at < count; at = sequences.back()->next_position()) {
      const auto size = static_cast<size_t>(std::min(count - at, team.step_tokens(ids.back())));
      Team::Part part{.sequence = ids.back(),
                      .begin = at,
                      .tokens = std::span(tokens).subspan(static_cast<size_t>(at), size),
                      .first_logits = static_cast<int32_t>(size)};
      EXPECT_TRUE(team.step(Phase::kPrefill, {&part, 1}, {}));
    }
  }
  const auto sum = [&] {
    Batch all;
    for (const RankReport& one : value_of(team.report()))
      for (const auto& [to, from] : {std::pair(&all.slots, &one.slots),
                                     {&all.pages, &one.pages},
                                     {&all.queries, &one.queries},
                                     {&all.states, &one.states}})
        to->messages += from->messages, to->bytes += from->bytes;
    return all;
  };
  const Batch before = sum();
  std::vector<Team::Part> parts;
  for (size_t i = 0; i < ids.size(); ++i)
    parts.push_back(
        {.sequence = ids[i], .begin = static_cast<int32_t>(prompts[i].size()), .tokens = std::span(&next, 1)});
  batch.logits.resize(ids.size());
  EXPECT_TRUE(team.step(Phase::kPrefill, parts, [&](size_t part, int32_t, std::span<const float> logits) {
    batch.logits[part].assign(logits.begin(), logits.end());
  }));
  const Batch after = sum();
  for (const auto& [to, a, b] : {std::tuple(&batch.slots, &after.slots, &before.slots),
                                 {&batch.pages, &after.pages, &before.pages},
                                 {&batch.queries, &after.queries, &before.queries},
                                 {&batch.states, &after.states, &before.states}})
    *to = {a->messages - b->messages, a->bytes - b->bytes};
  for (uint64_t id : ids) team.drop(id);
  return batch;
}

// Two segments each, of which the second is the new token's.
std::vector<std::vector<TokenId>> prompts(size_t count) {
  std::vector<std::vector<TokenId>> list;
  for (uint32_t i = 0; i < count; ++i) list.push_back(prompt(1100 + 40 * i, i + 1));
  return list;
}

TEST(TeamBatch, OneExchangeForAllTokensOfAStep) {
  constexpr size_t kSequences = 8;
  std::vector<std::vector<float>> want;
  {
    const Engine alone = open();
    for (const auto& tokens : prompts(kSequences)) want.push_back(logits_of(alone, tokens, std::vector<TokenId>{17}));
  }
  for (const char* codec : {"f16", "q4:last=64"})
    for (int count : {2, 3})
      expect_all_well(with_ranks(count, [&](auto ranks) {
        EngineOptions options = over(ranks);
        options.rank_options.ring = "pass-q";
        options.kv_codec = codec;
        const Engine engine = open(options);
        Team& team = *RanksProbe::team(engine);
        std::vector<Batch> each;
        Batch sums;
        for (const auto& tokens : prompts(kSequences)) {
          const Batch& one = each.emplace_back(decode(team, {tokens}));
          sums.queries.messages += one.queries.messages, sums.queries.bytes += one.queries.bytes;
          sums.states.messages += one.states.messages, sums.states.bytes += one.states.bytes;
          sums.slots.messages += one.slots.messages, sums.slots.bytes += one.slots.bytes;
        }
        const Batch all = decode(team, prompts(kSequences));
        for (size_t i = 0; i < kSequences; ++i) {
          EXPECT_EQ(all.logits[i], each[i].logits[0]) << codec << " " << i;
          if (codec == std::string_view("f16")) {
            EXPECT_EQ(all.logits[i], want[i]) << i;
          }
        }
        // The same queries and states; new K and V in fewer pages, since tokens of many sequences share one.
        EXPECT_EQ(all.queries.bytes, sums.queries.bytes);
        EXPECT_EQ(all.states.bytes, sums.states.bytes);
        EXPECT_LT(all.slots.bytes, sums.slots.bytes);
        // Of each kind one message per pair of ranks and layer at most.
        const auto most = static_cast<uint64_t>(2 * count * (count - 1));
        EXPECT_LE(all.queries.messages, most);
        EXPECT_LE(all.states.messages, most);
        EXPECT_LE(all.slots.messages, most);
        EXPECT_EQ(sums.queries.messages, 2U * kSequences);  // alone, each asks the other keeper, in either layer
        EXPECT_EQ(all.pages.messages, 0U);
      }));
}

TEST(TeamBatch, WaysMixWithinAStepAndGiveTheBitsOfOneProcess) {
  // Sequences of one rank and of all, short and long, whose keys and values travel or whose queries do.
  std::vector<std::vector<TokenId>> list;
  for (uint32_t i = 0; i < 6; ++i) list.push_back(prompt(i % 2 == 0 ? 30 + i : 1200 + 100 * i, i + 1));
  std::vector<std::vector<float>> want;
  for (const auto& tokens : list) want.push_back(logits_of(open(), tokens, std::vector<TokenId>{17}));
  for (const char* ring : {"auto", "pass-kv", "pass-q"})
    for (bool share : {true, false})
      expect_all_well(with_ranks(3, [&](auto ranks) {
        EngineOptions options = over(ranks);
        options.rank_options.ring = ring;
        options.rank_options.share_memory = share;
        const Engine engine = open(options);
        const Batch all = decode(*RanksProbe::team(engine), list);
        for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ(all.logits[i], want[i]) << ring << " " << share << " " << i;
      }));
}

}  // namespace
}  // namespace godwit
