// For tests: what a grammar says about a text, and tokenizers.
#pragma once

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "text/grammar/constraint.h"
#include "text/grammar/json_schema.h"

namespace godwit::grammar_test {

template <class T>
T value_of(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return std::move(*result);
}

enum class Verdict { kNo, kBeginning, kWhole };

inline Verdict judge(const Grammar& grammar, std::string_view text) {
  GrammarStacks stacks;
  std::vector<GrammarPlace> seeds = {{grammar.start(), 0}};
  GrammarPlaces places = value_of(settle(grammar, stacks, seeds, Grammar::kMostFrames));
  for (const char c : text) {
    for (const GrammarPlace& place : places.list)
      if (uint32_t to = grammar.next(place.state, grammar.class_of(static_cast<uint8_t>(c))); to != 0)
        seeds.push_back({to, place.stack});
    places = value_of(settle(grammar, stacks, seeds, Grammar::kMostFrames));
    if (places.list.empty() && !places.may_end) return Verdict::kNo;
  }
  return places.may_end ? Verdict::kWhole : Verdict::kBeginning;
}

inline Grammar grammar_of(std::string_view schema) {
  return value_of(json_schema_grammar(schema));
}

inline bool accepts(std::string_view schema, std::string_view text) {
  return judge(grammar_of(schema), text) == Verdict::kWhole;
}

// With these special tokens besides its own.
inline Tokenizer tokenizer(const std::string& name, const std::vector<std::string>& specials = {}) {
  std::ifstream file(std::string(GODWIT_TEST_DATA) + "/tokenizers/" + name + ".json", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (specials.empty()) return value_of(Tokenizer::from_json(text.str(), "", name));
  auto json = nlohmann::json::parse(text.str());
  int64_t id = value_of(Tokenizer::from_json(text.str(), "", name)).vocab_size();
  for (const std::string& special : specials)
    json["added_tokens"].push_back({{"id", id++},
                                    {"content", special},
                                    {"special", true},
                                    {"normalized", false},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false}});
  return value_of(Tokenizer::from_json(json.dump(), "", name));
}

}  // namespace godwit::grammar_test
