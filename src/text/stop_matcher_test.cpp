#include "text/stop_matcher.h"

#include <random>

#include <gtest/gtest.h>

namespace godwit {
namespace {

StopMatcher matcher(std::vector<std::string> stops) {
  auto made = StopMatcher::make(std::move(stops));
  EXPECT_TRUE(made);
  return *made;
}

TEST(StopMatcher, HoldsBackPossibleBeginnings) {
  StopMatcher m = matcher({"END", "\n\n"});
  EXPECT_EQ(m.push("hello E"), "hello ");
  EXPECT_EQ(m.push("N"), "");
  EXPECT_EQ(m.push("xt\n"), "ENxt");
  EXPECT_EQ(m.push("\nmore"), "");
  EXPECT_TRUE(m.stopped());
  EXPECT_EQ(m.matched(), 1u);
  EXPECT_EQ(m.push("later"), "");
  EXPECT_EQ(m.flush(), "");
  m.reset();
  EXPECT_EQ(m.push("a EN"), "a ");
  EXPECT_EQ(m.flush(), "EN");
}

TEST(StopMatcher, OverlapsAndNesting) {
  StopMatcher m = matcher({"aab"});
  EXPECT_EQ(m.push("aaaa"), "aa");
  EXPECT_EQ(m.push("b"), "");
  EXPECT_TRUE(m.stopped());
  // The shorter one completes first although the longer began earlier.
  StopMatcher nested = matcher({"abcd", "bc"});
  EXPECT_EQ(nested.push("xabcd"), "xa");
  EXPECT_EQ(nested.matched(), 1u);
  // Both complete at the same byte: the longer wins.
  StopMatcher suffix = matcher({"c", "abc"});
  EXPECT_EQ(suffix.push("xabc"), "x");
  EXPECT_EQ(suffix.matched(), 1u);
}

TEST(StopMatcher, EdgeCases) {
  StopMatcher none = matcher({});
  EXPECT_EQ(none.push("anything"), "anything");
  EXPECT_FALSE(StopMatcher::make({"a", ""}));
  EXPECT_FALSE(StopMatcher::make({std::string(StopMatcher::kMaxBytes + 1, 'x')}));
  StopMatcher twice = matcher({"x", "x"});
  EXPECT_EQ(twice.push("ax"), "a");
  EXPECT_EQ(twice.matched(), 0u);
  StopMatcher bytes = matcher({std::string("\0\xff", 2)});
  EXPECT_EQ(bytes.push(std::string("a\0\xff", 3)), "a");
}

struct Naive {
  std::string shown;
  std::optional<size_t> matched;
};

// At the first byte where any stop string is complete, the longest of those that are; the text is cut before it.
Naive naive(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); end++) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); i++) {
      bool here = stops[i].size() <= end && text.compare(end - stops[i].size(), stops[i].size(), stops[i]) == 0;
      if (here && (!best || stops[i].size() > stops[*best].size())) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, AgreesWithNaiveMatchingOverRandomPieces) {
  std::mt19937 random(1);
  auto pick = [&](unsigned n) { return static_cast<size_t>(random() % n); };
  auto word = [&](size_t length) {
    std::string out;
    for (size_t i = 0; i < length; i++) out += static_cast<char>('a' + pick(3));
    return out;
  };
  for (int round = 0; round < 20'000; round++) {
    std::vector<std::string> stops;
    for (size_t i = pick(4) + 1; i > 0; i--) stops.push_back(word(pick(5) + 1));
    std::string text = word(pick(24));
    StopMatcher m = matcher(stops);
    std::string shown;
    for (size_t pos = 0; pos < text.size();) {
      size_t bytes = pick(4) + 1;
      shown += m.push(std::string_view(text).substr(pos, bytes));
      pos += bytes;
      // Nothing shown may be taken back later, and nothing is held that cannot begin a stop string.
      Naive so_far = naive(text.substr(0, pos), stops);
      ASSERT_EQ(so_far.shown.compare(0, shown.size(), shown), 0);
      if (so_far.matched) continue;
      std::string held = so_far.shown.substr(shown.size());
      bool begins = held.empty();
      for (const std::string& stop : stops)
        begins |= stop.size() > held.size() && stop.compare(0, held.size(), held) == 0;
      ASSERT_TRUE(begins) << held;
    }
    shown += m.flush();
    Naive expected = naive(text, stops);
    ASSERT_EQ(shown, expected.shown) << text;
    ASSERT_EQ(m.matched().has_value(), expected.matched.has_value());
    if (expected.matched) {
      ASSERT_EQ(stops[*m.matched()], stops[*expected.matched]);
    }
  }
}

TEST(StopMatcher, LinearOnRepetitiveText) {
  StopMatcher m = matcher({std::string(100'000, 'a') + "b"});
  std::string text(200'000, 'a');
  size_t shown = 0;
  for (size_t pos = 0; pos < text.size(); pos += 50'000) shown += m.push(text.substr(pos, 50'000)).size();
  EXPECT_EQ(shown, 100'000u);
}

}  // namespace
}  // namespace godwit
