// The merges that the scores of a SentencePiece BPE vocabulary imply: two neighbors may merge when their concatenation
// is a token, the one with the higher score first.
#pragma once

#include <string>
#include <vector>

#include "text/bpe.h"
#include "text/vocab.h"
#include <godwit/status.h>

namespace godwit {

struct ImpliedMerges {
  std::vector<BpeMerge> merges;          // equal scores have equal ranks
  std::vector<std::string> extra_chars;  // characters that only occur inside tokens; ids follow the vocabulary
};

// `can_merge[id]`: the token may be the result of a merge. Fails on a token too long to cut in every place.
Result<ImpliedMerges> implied_merges(const Vocab& vocab, const std::vector<float>& scores,
                                     const std::vector<bool>& can_merge);

}  // namespace godwit
