// Calls of tools, as a model's format writes them, with arguments that the tools' schemas accept: what `tool_choice`
// required asks for.
#pragma once

#include <span>

#include "text/grammar/grammar.h"
#include "text/tokenizer.h"
#include "text/tool_calls.h"

namespace godwit {

// One to `most_calls` calls and nothing else; formats without marks have one. Marks that are special tokens of the
// tokenizer are asked for as such.
Result<Grammar> tool_call_grammar(const Tokenizer& tokenizer, ToolStyle style, std::span<const Tool> tools,
                                  int most_calls);

}  // namespace godwit
