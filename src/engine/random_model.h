// A GGUF file of a public model's shape with random weights: as slow and as large as the real one, and as loadable, for
// Godwit and for every other program that reads GGUF.
#pragma once

#include "engine/convert.h"
#include "engine/shapes.h"
#include "text/gguf_vocab.h"

namespace godwit {

// Matrices are gaussian with deviation 1/sqrt(row length), norms are 1, biases 0, so activations stay finite through
// any number of layers. The vocabulary has the model's size, but is a made-up byte-level BPE. The same seed makes the
// same file, whatever the number of threads. Memory stays bounded: one batch of one tensor at a time.
Result<ConvertReport> write_random_model(const ModelShape& shape, uint64_t seed, const ConvertOptions& options,
                                         const std::filesystem::path& path);

// All byte strings, the shorter first, as far as `size` reaches; the last two tokens are BOS and EOS.
// REQUIRES: size > 258.
GgufVocab made_up_vocab(int64_t size);

}  // namespace godwit
