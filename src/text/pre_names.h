// The names that GGUF files give to split patterns (tokenizer.ggml.pre), and what they stand for.
//
// A name also implies what the common GGUF keys cannot say: Unicode normalization, whether a piece that is a token
// stays whole, and the default for BOS.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/pre_tokenizer.h"
#include <godwit/status.h>

namespace godwit {

struct PreTraits {
  std::vector<PreTokenizerStep> steps;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
};

// Fails for a name that is not known, naming it.
Result<PreTraits> find_pre(std::string_view name, std::string_view label);

// The name whose traits (but for add_bos) equal these; an error where no name does.
Result<std::string> name_of_pre(const PreTraits& traits, std::string_view label);

}  // namespace godwit
