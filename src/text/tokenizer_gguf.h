// What reading a vocabulary from GGUF and writing one have to agree on.
#pragma once

#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"

namespace godwit {

// The pipeline of a SentencePiece BPE ("llama").
struct SpmPipeline {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
};
// `space_prefix`: "" puts a space in front of every stretch of text between special tokens; "always" the same unless
// there is one; "first" only at the start of the input. Fails for other words.
Result<SpmPipeline> spm_pipeline(bool add_prefix, std::string_view space_prefix, std::string_view label);

// A unigram model ("t5").
SpmPipeline unigram_pipeline(bool add_prefix, bool squash_spaces);

BpeOptions spm_options(TokenId unk);

}  // namespace godwit
