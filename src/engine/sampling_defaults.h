// How a model's makers want its tokens to be chosen, as far as its file says: generation_config.json of a folder,
// "general.sampling.*" of a GGUF file.
#pragma once

#include <optional>

#include "io/gguf_metadata.h"
#include "model/source.h"
#include <godwit/options.h>

namespace godwit {

struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;

  SamplingOptions over(SamplingOptions otherwise) const;  // `otherwise` where nothing is said
};

// As transformers has it, a folder samples only where "do_sample" is true, at a temperature of 1 unless it gives one.
// kBadData names a value that makes no sense.
Result<SamplingDefaults> read_sampling_defaults(const ModelSource& source);

Status write_sampling_defaults(const SamplingDefaults& defaults, GgufMetadata& metadata);

}  // namespace godwit
