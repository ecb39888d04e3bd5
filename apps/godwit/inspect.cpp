// godwit inspect: a model file's facts, without loading it.
#include <iostream>
#include <map>

#include <nlohmann/json.hpp>

#include "engine/builtin_model.h"
#include "engine/memory_plan.h"
#include "kv/codec.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

using ordered_json = nlohmann::ordered_json;

std::span<const TensorEntry> tensors_of(const ModelSource& source) {
  return source.gguf() != nullptr ? source.gguf()->tensors() : source.folder()->weights().tensors();
}

ordered_json value_json(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> ordered_json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, GgufArray>)
          return std::visit([](const auto& array) -> ordered_json { return {{"array_of", array.size()}}; }, v);
        else
          return v;
      },
      value);
}

Result<ordered_json> facts(const ModelSource& source, bool with_tensors) {
  const ModelConfig& c = source.config();
  ordered_json report;
  report["file"] = source.label();
  report["format"] = source.gguf() != nullptr ? fmt::format("GGUF v{}", source.gguf()->version()) : "safetensors";
  report["family"] = c.family;
  uint64_t parameters = 0;
  std::map<std::string, std::pair<int, uint64_t>> types;
  for (const TensorEntry& entry : tensors_of(source)) {
    uint64_t elements = 1;
    for (int64_t n : entry.shape) elements *= static_cast<uint64_t>(n);
    parameters += elements;
    auto& [count, bytes] = types[std::string(dtype_name(entry.dtype))];
    ++count;
    bytes += entry.bytes.size();
  }
  report["parameters"] = parameters;
  report["weight_bytes"] = source.weight_bytes();
  report["context_length"] = c.context_length;
  report["layers"] = c.layers.size();
  report["embedding_size"] = c.dim;
  report["heads"] = c.heads;
  report["kv_heads"] = c.kv_heads;
  report["head_size"] = c.head_dim;
  report["feed_forward_size"] = c.ffn_dim;
  if (c.experts > 0) report["experts"] = fmt::format("{} of {}", c.experts_per_token, c.experts);
  report["vocabulary"] = c.vocab_size;
  GODWIT_ASSIGN(KvFormat format, make_kv_format("f16", c.head_dim));
  report["kv_bytes_per_token_f16"] =
      c.layers.size() * static_cast<size_t>(c.kv_heads) * format.page_bytes() / static_cast<size_t>(format.page_tokens);
  for (const auto& [name, total] : types)
    report["tensor_types"][name] = {{"tensors", total.first}, {"bytes", total.second}};
  if (source.gguf() != nullptr)
    for (const auto& item : source.gguf()->metadata().items()) report["metadata"][item.key] = value_json(item.value);
  if (with_tensors)
    for (const TensorEntry& entry : tensors_of(source))
      report["tensors"].push_back({{"name", entry.name}, {"type", dtype_name(entry.dtype)}, {"shape", entry.shape}});
  return report;
}

// One line that can do nothing to a terminal: what a file says may hold escape sequences.
std::string harmless(std::string_view said) {
  std::string line;
  for (size_t i = 0; i < said.size(); ++i) {
    const auto c = static_cast<unsigned char>(said[i]);
    const bool c1 = c == 0xC2 && i + 1 < said.size() && static_cast<unsigned char>(said[i + 1]) < 0xA0;
    if (c == '\n')
      line += "\\n";
    else if (c < 0x20 || c == 0x7F || c1)
      line += fmt::format("\\x{:02x}", c1 ? static_cast<unsigned char>(said[++i]) : c);
    else
      line += said[i];
  }
  return line.size() > 90 ? line.substr(0, 87) + "..." : line;
}

void print(const ordered_json& report) {
  auto text = [](const ordered_json& value) {
    return harmless(value.is_string() ? value.get<std::string>()
                                      : value.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  };
  for (const auto& [key, value] : report.items()) {
    if (!value.is_structured()) {
      std::cout << fmt::format("{:<24} {}\n", key, text(value));
      continue;
    }
    std::cout << key << "\n";
    for (const auto& [name, item] : value.items()) {
      if (key == "tensors")
        std::cout << fmt::format("  {:<40} {:<8} {}\n", text(item["name"]), text(item["type"]), text(item["shape"]));
      else
        std::cout << fmt::format("  {:<40} {}\n", harmless(name), text(item));
    }
  }
}

}  // namespace

void add_inspect(Program& program) {
  struct State {
    std::string model;
    bool tensors = false;
  };
  auto state = std::make_shared<State>();
  CLI::App* verb = add_verb(program, "inspect", "Show what a model file holds");
  verb->add_option("model,-m,--model", state->model, "GGUF file or Hugging Face folder (default: the built-in model)");
  verb->add_flag("--tensors", state->tensors, "List every tensor");
  verb->callback([&program, state] {
    program.run = [&program, state]() -> Status {
      GODWIT_ASSIGN(ModelSource source, state->model.empty() ? open_builtin_model() : ModelSource::open(state->model));
      GODWIT_ASSIGN(ordered_json report, facts(source, state->tensors));
      if (program.json)
        std::cout << report.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
      else
        print(report);
      return {};
    };
  });
}

}  // namespace godwit::cli
