// A schema, a NUL byte, and choices: any schema is refused with a short message or becomes a grammar, and whatever is
// chosen from what the grammar allows is the beginning of JSON that can be finished.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "text/grammar/json_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace godwit;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = std::min(input.find('\0'), input.size());
  const std::string_view choices = input.substr(split);
  const auto grammar = json_schema_grammar(input.substr(0, split));
  if (!grammar) {
    GODWIT_CHECK(!grammar.error().message.empty() && grammar.error().message.size() < 1000);
    return 0;
  }
  GrammarStacks stacks;
  std::vector<GrammarPlace> seeds = {{grammar->start(), 0}};
  auto places = settle(*grammar, stacks, seeds, Grammar::kMostFrames);
  std::string text;
  for (size_t i = 0; places && i < 2000 && !places->list.empty(); ++i) {
    // Past the choices, and where one says so, the way out: any byte that some place takes, the last first.
    const uint8_t choice = i < choices.size() ? static_cast<uint8_t>(choices[i]) : 0x5D;
    if (places->may_end && choice % 2 == 0) break;
    int byte = -1;
    for (int offset = 0; offset < 256 && byte < 0; ++offset) {
      const auto candidate = static_cast<uint8_t>(choice - offset);
      for (const GrammarPlace& place : places->list)
        if (grammar->next(place.state, grammar->class_of(candidate)) != 0) byte = candidate;
    }
    GODWIT_CHECK(byte >= 0, "a dead end behind '{}'", text);
    text += static_cast<char>(byte);
    for (const GrammarPlace& place : places->list)
      if (const uint32_t to = grammar->next(place.state, grammar->class_of(static_cast<uint8_t>(byte))); to != 0)
        seeds.push_back({to, place.stack});
    places = settle(*grammar, stacks, seeds, Grammar::kMostFrames);
    GODWIT_CHECK(!places || !places->list.empty() || places->may_end, "a dead end behind '{}'", text);
  }
  if (places && places->may_end) GODWIT_CHECK(nlohmann::json::accept(text), "no JSON: {}", text);
  return 0;
}
