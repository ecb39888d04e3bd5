#include "model/source.h"

#include <algorithm>

namespace godwit {
namespace {

// Every tensor that a model of this shape may have, in the order of a GGUF file.
std::vector<std::string> known_tensor_names(size_t layers) {
  std::vector<std::string> names = {"token_embd.weight", "output_norm.weight", "output.weight"};
  for (size_t i = 0; i < layers; ++i)
    for (const char* part : {"attn_norm.weight",     "attn_q.weight",
                             "attn_q.bias",          "attn_k.weight",
                             "attn_k.bias",          "attn_v.weight",
                             "attn_v.bias",          "attn_qkv.weight",
                             "attn_qkv.bias",        "attn_q_norm.weight",
                             "attn_k_norm.weight",   "attn_output.weight",
                             "attn_output.bias",     "post_attention_norm.weight",
                             "ffn_norm.weight",      "ffn_gate.weight",
                             "ffn_gate.bias",        "ffn_up.weight",
                             "ffn_up.bias",          "ffn_down.weight",
                             "ffn_down.bias",        "ffn_gate_inp.weight",
                             "ffn_gate_exps.weight", "ffn_up_exps.weight",
                             "ffn_down_exps.weight", "post_ffw_norm.weight"})
      names.push_back(fmt::format("blk.{}.{}", i, part));
  return names;
}

// The weights of such a folder are packed, or scaled by tensors that no family asks for: read as plain ones, they would
// be missing, or noise.
Status refuse_quantized(const HfFolder& folder) {
  const JsonObject config = folder.config();
  GODWIT_ASSIGN(const std::optional<JsonObject> text, config.find_object("text_config"));
  for (const JsonObject& object : {config, text.value_or(config)})
    for (const char* key : {"quantization_config", "compression_config"}) {
      GODWIT_ASSIGN(const std::optional<JsonObject> quantization, object.find_object(key));
      if (!quantization) continue;
      GODWIT_ASSIGN(const std::string method,
                    quantization->get_or<std::string>("quant_method", "a method without name"));
      return errorf(ErrorCode::kUnsupported,
                    "{}: '{}' says that the weights are quantized by {}, which we do not read; give the original "
                    "checkpoint, or a GGUF file, which may be quantized",
                    config.label(), key, method);
    }
  return {};
}

}  // namespace

Result<ModelSource> ModelSource::open(const std::filesystem::path& path) {
  ModelSource source;
  source.label_ = path.string();
  source.mapped_ = true;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    GODWIT_ASSIGN(HfFolder folder, HfFolder::open(path));
    GODWIT_TRY(refuse_quantized(folder));
    source.folder_ = std::make_shared<const HfFolder>(std::move(folder));
    GODWIT_ASSIGN(ConfigReader reader, ConfigReader::from_hf(source.folder_->config()));
    for (const char* prefix : {"", "language_model.", "model.language_model."}) {
      source.hf_prefix_ = prefix;
      GODWIT_ASSIGN(const TensorEntry* embedding, source.find("model.embed_tokens.weight"));
      if (embedding != nullptr) break;
    }
    GODWIT_TRY(source.configure(reader));
    return source;
  }
  GODWIT_ASSIGN(Gguf gguf, Gguf::open(path));
  source.gguf_ = std::make_shared<const Gguf>(std::move(gguf));
  GODWIT_ASSIGN(ConfigReader reader, ConfigReader::from_gguf(*source.gguf_, source.label_));
  GODWIT_TRY(source.configure(reader));
  return source;
}

Result<ModelSource> ModelSource::from_memory(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                                             std::string label, bool mapped) {
  ModelSource source;
  source.label_ = label;
  source.mapped_ = mapped;
  GODWIT_ASSIGN(Gguf gguf, Gguf::parse(std::move(owner), bytes, std::move(label)));
  source.gguf_ = std::make_shared<const Gguf>(std::move(gguf));
  GODWIT_ASSIGN(ConfigReader reader, ConfigReader::from_gguf(*source.gguf_, source.label_));
  GODWIT_TRY(source.configure(reader));
  return source;
}

Status ModelSource::configure(const ConfigReader& reader) {
  if (gguf_) {
    GODWIT_ASSIGN(auto parts, gguf_->metadata().get_or<uint64_t>("split.count", 1));
    if (parts > 1)
      return errorf(ErrorCode::kUnsupported,
                    "{}: this is one of {} parts of a split model; merge the parts into one file first", label_, parts);
  }
  GODWIT_ASSIGN(family_, find_model_family(reader));
  config_ = {};
  GODWIT_TRY(family_->configure(reader, config_));
  config_.family = family_->name;
  // The embedding has the last word on the size of the vocabulary: configurations may omit or round it.
  GODWIT_ASSIGN(auto embedding, tensor("token_embd.weight"));
  if (embedding[0]->shape.size() == 2) config_.vocab_size = embedding[0]->shape[0];
  if (reader.is_gguf())  // GGUF marks dense layers of a mixed model by what tensors they have
    for (size_t i = 0; i < config_.layers.size(); ++i)
      config_.layers[i].experts = config_.experts > 0 && has(fmt::format("blk.{}.ffn_gate_inp.weight", i));
  return validate(config_, reader.label());
}

Result<const TensorEntry*> ModelSource::find(const std::string& name) const {
  if (gguf_) return gguf_->find(name);
  // Newer multimodal checkpoints say model.language_model.layers, older ones language_model.model.layers.
  if (hf_prefix_ == "model.language_model." && name.substr(0, 6) == "model.")
    return folder_->weights().find(hf_prefix_ + name.substr(6));
  return folder_->weights().find(hf_prefix_ + name);
}

Result<std::vector<const TensorEntry*>> ModelSource::pieces(const std::string& gguf_name) const {
  std::vector<const TensorEntry*> found;
  const std::string name = gguf_ ? gguf_name : hf_tensor_name(*family_, gguf_name);
  if (name.empty()) return found;
  const size_t expert = name.find("[]");
  const int count = expert == std::string::npos ? 1 : config_.experts;
  for (int i = 0; i < count; ++i) {
    const std::string one =
        expert == std::string::npos ? name : name.substr(0, expert) + std::to_string(i) + name.substr(expert + 2);
    GODWIT_ASSIGN(const TensorEntry* entry, find(one));
    if (entry == nullptr) return std::vector<const TensorEntry*>{};
    found.push_back(entry);
  }
  return found;
}

std::vector<std::string> ModelSource::tensor_names() const {
  std::vector<std::string> names;
  if (gguf_) {
    for (const TensorEntry& entry : gguf_->tensors()) names.push_back(entry.name);
  } else {
    names = known_tensor_names(config_.layers.size());
    names.erase(std::remove_if(names.begin(), names.end(), [&](const std::string& name) { return !has(name); }),
                names.end());
  }
  return names;
}

bool ModelSource::has(const std::string& gguf_name) const {
  auto found = pieces(gguf_name);
  return !found || !found->empty();
}

Result<std::vector<const TensorEntry*>> ModelSource::tensor(const std::string& gguf_name) const {
  GODWIT_ASSIGN(auto found, pieces(gguf_name));
  if (found.empty())
    return errorf(ErrorCode::kNotFound, "{}: the tensor '{}' is missing; the file is incomplete or of another kind",
                  label_, gguf_ ? gguf_name : hf_prefix_ + hf_tensor_name(*family_, gguf_name));
  return found;
}

size_t ModelSource::weight_bytes() const {
  size_t bytes = 0;
  for (const TensorEntry& entry : gguf_ ? gguf_->tensors() : folder_->weights().tensors()) bytes += entry.bytes.size();
  return bytes;
}

std::shared_ptr<const void> ModelSource::owner() const {
  if (gguf_) return gguf_->owner();
  return folder_->weights().owner();
}

}  // namespace godwit
