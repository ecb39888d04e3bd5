// A model as Hugging Face lays it out: a folder of JSON files and safetensors.
//
// config.json and the weights must be there; the rest is asked for when it is needed. All files but tokenizer.json are
// read at open. Immutable; copies share everything. What the accessors give stays valid as long as any copy is alive.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/json.h"
#include "io/safetensors.h"
#include <godwit/status.h>

namespace godwit {

class HfFolder {
 public:
  static Result<HfFolder> open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const;
  const Safetensors& weights() const;

  JsonObject config() const;                            // config.json
  std::optional<JsonObject> generation_config() const;  // generation_config.json
  std::optional<JsonObject> tokenizer_config() const;   // tokenizer_config.json
  Result<std::string> tokenizer() const;                // text of tokenizer.json; kNotFound with the remedy when absent

  // chat_template.jinja, or else the "chat_template" of tokenizer_config.json: a string, or of several the one named
  // "default". None when the model brings no template; kNotFound with their names when none of several is the default.
  Result<std::optional<std::string>> chat_template() const;

 private:
  struct Files;
  explicit HfFolder(std::shared_ptr<const Files> files) : files_(std::move(files)) {}
  std::shared_ptr<const Files> files_;
};

}  // namespace godwit
