#include "io/hf_folder.h"

#include <system_error>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/result.h"
#include "io/mapped_file.h"

namespace godwit {

using nlohmann::json;

struct HfFolder::Files {
  std::filesystem::path folder;
  Safetensors weights;
  json config, generation_config, tokenizer_config;  // null when the file is absent
  std::optional<std::string> chat_template;          // of chat_template.jinja
};

namespace {

constexpr size_t kMaxTemplateBytes = size_t{4} << 20;

JsonLimits config_limits() {
  JsonLimits limits;
  limits.max_bytes = size_t{64} << 20;
  limits.max_values = size_t{4} << 20;
  return limits;
}

// The object in a file, or null when there is no such file.
Result<json> read_object(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file && file.error().code == ErrorCode::kNotFound) return json();
  if (!file) return tl::unexpected(std::move(file).error());
  GODWIT_ASSIGN(json value, parse_json((*file)->text(), path.string(), config_limits()));
  GODWIT_TRY(JsonObject::of(value, path.string()));
  return value;
}

Result<std::optional<std::string>> read_template(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file && file.error().code == ErrorCode::kNotFound) return std::optional<std::string>();
  if (!file) return tl::unexpected(std::move(file).error());
  if ((*file)->bytes().size() > kMaxTemplateBytes)
    return errorf(ErrorCode::kExhausted, "{}: a chat template of {} bytes is over the limit of {}", path.string(),
                  (*file)->bytes().size(), kMaxTemplateBytes);
  return std::optional<std::string>((*file)->text());
}

JsonObject as_object(const json& value, const std::filesystem::path& path) {
  auto object = JsonObject::of(value, path.string());
  GODWIT_CHECK(object.has_value());  // checked by open
  return *object;
}

std::optional<JsonObject> as_optional(const json& value, const std::filesystem::path& path) {
  if (value.is_null()) return std::nullopt;
  return as_object(value, path);
}

}  // namespace

Result<HfFolder> HfFolder::open(const std::filesystem::path& folder) {
  std::error_code error;
  auto kind = std::filesystem::status(folder, error).type();
  if (kind == std::filesystem::file_type::not_found)
    return errorf(ErrorCode::kNotFound, "{}: no such folder", folder.string());
  if (kind != std::filesystem::file_type::directory)
    return errorf(ErrorCode::kInvalidArgument, "{}: is not a folder", folder.string());

  GODWIT_ASSIGN(json config, read_object(folder / "config.json"));
  if (config.is_null())
    return errorf(ErrorCode::kNotFound, "{}: config.json is missing; give the folder of a Hugging Face model",
                  folder.string());
  GODWIT_ASSIGN(json generation_config, read_object(folder / "generation_config.json"));
  GODWIT_ASSIGN(json tokenizer_config, read_object(folder / "tokenizer_config.json"));
  GODWIT_ASSIGN(auto chat_template, read_template(folder / "chat_template.jinja"));
  GODWIT_ASSIGN(Safetensors weights, Safetensors::open(folder));
  return HfFolder(
      std::make_shared<const Files>(Files{folder, std::move(weights), std::move(config), std::move(generation_config),
                                          std::move(tokenizer_config), std::move(chat_template)}));
}

const std::filesystem::path& HfFolder::path() const {
  return files_->folder;
}

const Safetensors& HfFolder::weights() const {
  return files_->weights;
}

JsonObject HfFolder::config() const {
  return as_object(files_->config, path() / "config.json");
}

std::optional<JsonObject> HfFolder::generation_config() const {
  return as_optional(files_->generation_config, path() / "generation_config.json");
}

std::optional<JsonObject> HfFolder::tokenizer_config() const {
  return as_optional(files_->tokenizer_config, path() / "tokenizer_config.json");
}

Result<std::string> HfFolder::tokenizer() const {
  auto file = MappedFile::open(path() / "tokenizer.json");
  if (file) return std::string((*file)->text());
  if (file.error().code != ErrorCode::kNotFound) return tl::unexpected(std::move(file).error());
  std::error_code ignored;
  bool sentencepiece = std::filesystem::exists(path() / "tokenizer.model", ignored);
  return errorf(ErrorCode::kNotFound, "{}: tokenizer.json is missing; {}", path().string(),
                sentencepiece ? "convert tokenizer.model with AutoTokenizer.from_pretrained(…).save_pretrained(…)"
                              : "download it from the model's page");
}

Result<std::optional<std::string>> HfFolder::chat_template() const {
  if (files_->chat_template) return files_->chat_template;
  std::optional<JsonObject> config = tokenizer_config();
  if (!config || !config->has("chat_template")) return std::optional<std::string>();
  const json& value = config->value()["chat_template"];
  if (!value.is_array()) return config->find<std::string>("chat_template");
  std::string names;
  for (const json& item : value) {
    GODWIT_ASSIGN(JsonObject named, JsonObject::of(item, config->label() + ": an entry of 'chat_template'"));
    GODWIT_ASSIGN(std::string name, named.get<std::string>("name"));
    if (name == "default" || value.size() == 1) return named.find<std::string>("template");
    names += (names.empty() ? "'" : ", '") + name + "'";
  }
  if (names.empty()) return std::optional<std::string>();
  return errorf(ErrorCode::kNotFound,
                "{}: the chat templates are named {}, and none 'default'; give one with --chat-template FILE",
                config->label(), names);
}

}  // namespace godwit
