// Facts: unique keys, values that the sentence states, the same for the same seed.
#include "eval/facts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace godwit {
namespace {

TEST(Facts, TheSentenceIsLeadAndValue) {
  for (std::string_view kind : {"number", "hex", "lives", "keeps"}) {
    std::mt19937_64 random(3);
    std::set<std::string> used;
    std::set<std::string> sentences, leads;
    for (size_t i = 1; i <= 1000; ++i) {
      const Fact fact = make_fact(kind, random, used);
      EXPECT_EQ(fact.sentences, std::vector<std::string>{fmt::format(" {}{}", fact.lead, fact.value)});
      EXPECT_EQ(used.size(), i);
      sentences.insert(fact.sentences[0]);
      leads.insert(fact.lead);
      ASSERT_EQ(leads.size(), i) << "two facts of one lead: " << fact.lead;
    }
    EXPECT_EQ(sentences.size(), 1000U);
  }
}

TEST(Facts, AnswersOfSeveralSentencesFollowFromThem) {
  std::mt19937_64 random(7);
  std::set<std::string> multi, sum, chain;
  for (int i = 0; i < 200; ++i) {
    const Fact numbers = make_fact("multi", random, multi);
    std::string listed;
    for (const std::string& sentence : numbers.sentences)
      listed += fmt::format("{}{}", listed.empty() ? "" : ",", sentence.substr(sentence.rfind(' '), 6));
    EXPECT_EQ(numbers.value, listed + ".");
    ASSERT_GE(numbers.sentences.size(), 2U);

    const Fact counter = make_fact("sum", random, sum);
    int total = 0;
    for (const std::string& sentence : counter.sentences) total += std::stoi(sentence.substr(sentence.rfind(' ')));
    EXPECT_TRUE(counter.value.ends_with(fmt::format(" is {}.", total))) << counter.value;

    const Fact copies = make_fact("chain", random, chain);
    std::string walk;  // from the last variable back to the value
    for (auto sentence = copies.sentences.rbegin(); sentence != copies.sentences.rend(); ++sentence)
      walk += walk.empty() ? sentence->substr(1, sentence->size() - 2) : sentence->substr(9, sentence->size() - 10);
    EXPECT_EQ(copies.lead + copies.value, walk + ".");
  }
}

TEST(Facts, TheSameSeedGivesTheSameFacts) {
  for (std::string_view kind : fact_kinds()) {
    auto facts = [&](uint64_t seed) {
      std::mt19937_64 random(seed);
      std::set<std::string> used;
      std::string all;
      for (int i = 0; i < 20; ++i) all += fmt::format("{}", fmt::join(make_fact(kind, random, used).sentences, ""));
      return all;
    };
    EXPECT_EQ(facts(1), facts(1));
    EXPECT_NE(facts(1), facts(2));
  }
  // Results are compared over machines and versions: these sentences may not change.
  std::mt19937_64 random(1);
  std::set<std::string> used;
  EXPECT_EQ(make_fact("number", random, used).sentences[0], " The special magic number for eager-engine is 5659930.");
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
