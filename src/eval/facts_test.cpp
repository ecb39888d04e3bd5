// Facts: unique keys, values that the sentence states, the same for the same seed.
#include "eval/facts.h"

#include <gtest/gtest.h>

namespace godwit {
namespace {

TEST(Facts, TheSentenceIsLeadAndValue) {
  for (std::string_view kind : fact_kinds()) {
    std::mt19937_64 random(3);
    std::set<std::string> used;
    std::set<std::string> sentences, leads;
    for (size_t i = 1; i <= 1000; ++i) {
      const Fact fact = make_fact(kind, random, used);
      EXPECT_EQ(fact.sentence, " " + fact.lead + fact.value);
      EXPECT_EQ(used.size(), i);
      sentences.insert(fact.sentence);
      leads.insert(fact.lead);
      ASSERT_EQ(leads.size(), i) << "two facts of one lead: " << fact.lead;
    }
    EXPECT_EQ(sentences.size(), 1000U);
  }
}

TEST(Facts, TheSameSeedGivesTheSameFacts) {
  for (std::string_view kind : fact_kinds()) {
    auto facts = [&](uint64_t seed) {
      std::mt19937_64 random(seed);
      std::set<std::string> used;
      std::string all;
      for (int i = 0; i < 20; ++i) all += make_fact(kind, random, used).sentence;
      return all;
    };
    EXPECT_EQ(facts(1), facts(1));
    EXPECT_NE(facts(1), facts(2));
  }
  // Results are compared over machines and versions: these sentences may not change.
  std::mt19937_64 random(1);
  std::set<std::string> used;
  EXPECT_EQ(make_fact("number", random, used).sentence, " The special magic number for eager-engine is 5659930.");
}

TEST(Facts, EveryKeyIsGivenOutOnce) {
  for (std::string_view kind : {"number", "lives", "keeps"}) {
    std::mt19937_64 random(5);
    std::set<std::string> used;
    const size_t capacity = fact_capacity(kind);
    EXPECT_GE(capacity, 3000U);
    for (size_t i = 0; i < capacity; ++i) make_fact(kind, random, used);
    EXPECT_EQ(used.size(), capacity) << kind;
  }
}

}  // namespace
}  // namespace godwit
