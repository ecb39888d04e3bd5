#include "engine/sampling_defaults.h"

#include <algorithm>

#include "text/sampler.h"

namespace godwit {
namespace {

constexpr const char *kTemperature = "general.sampling.temp", *kTopP = "general.sampling.top_p",
                     *kMinP = "general.sampling.min_p", *kTopK = "general.sampling.top_k",
                     *kRepetition = "general.sampling.penalty_repeat";

Result<SamplingDefaults> from_folder(const HfFolder& folder) {
  SamplingDefaults defaults;
  const std::optional<JsonObject> json = folder.generation_config();
  if (!json) return defaults;
  GODWIT_ASSIGN(defaults.repetition_penalty, json->find<double>("repetition_penalty"));
  GODWIT_ASSIGN(const bool sample, json->get_or<bool>("do_sample", false));
  if (!sample) return defaults;
  GODWIT_ASSIGN(defaults.temperature, json->get_or<double>("temperature", 1));
  GODWIT_ASSIGN(defaults.top_p, json->find<double>("top_p"));
  GODWIT_ASSIGN(defaults.min_p, json->find<double>("min_p"));
  GODWIT_ASSIGN(defaults.top_k, json->find<int64_t>("top_k"));
  return defaults;
}

Result<SamplingDefaults> from_gguf(const GgufMetadata& metadata) {
  SamplingDefaults defaults;
  GODWIT_ASSIGN(defaults.temperature, metadata.find<double>(kTemperature));
  GODWIT_ASSIGN(defaults.top_p, metadata.find<double>(kTopP));
  GODWIT_ASSIGN(defaults.min_p, metadata.find<double>(kMinP));
  GODWIT_ASSIGN(defaults.top_k, metadata.find<int64_t>(kTopK));
  GODWIT_ASSIGN(defaults.repetition_penalty, metadata.find<double>(kRepetition));
  return defaults;
}

}  // namespace

SamplingOptions SamplingDefaults::over(SamplingOptions o) const {
  auto take = [](float& value, const std::optional<double>& given) {
    if (given) value = static_cast<float>(*given);
  };
  take(o.temperature, temperature);
  take(o.top_p, top_p);
  take(o.min_p, min_p);
  take(o.repetition_penalty, repetition_penalty);
  if (top_k) o.top_k = static_cast<int>(std::clamp<int64_t>(*top_k, 0, INT32_MAX));  // files write -1 for all, too
  return o;
}

Result<SamplingDefaults> read_sampling_defaults(const ModelSource& source) {
  GODWIT_ASSIGN(const SamplingDefaults defaults,
                source.gguf() != nullptr ? from_gguf(source.gguf()->metadata()) : from_folder(*source.folder()));
  if (Status sound = validate(defaults.over({}), source.config().vocab_size); !sound)
    return errorf(ErrorCode::kBadData, "{}: of the sampling that it recommends, {}", source.label(),
                  sound.error().message);
  return defaults;
}

Status write_sampling_defaults(const SamplingDefaults& d, GgufMetadata& metadata) {
  auto write = [&](const char* key, const std::optional<double>& value) {
    return value ? metadata.set(key, static_cast<float>(*value)) : Status();
  };
  GODWIT_TRY(write(kTemperature, d.temperature));
  GODWIT_TRY(write(kTopP, d.top_p));
  GODWIT_TRY(write(kMinP, d.min_p));
  GODWIT_TRY(write(kRepetition, d.repetition_penalty));
  return d.top_k ? metadata.set(kTopK, static_cast<int32_t>(std::clamp<int64_t>(*d.top_k, -1, INT32_MAX))) : Status();
}

}  // namespace godwit
