// godwit quantize: a Hugging Face folder, a GGUF file or random numbers to a GGUF file of a given weight type.
#include <iostream>

#include <nlohmann/json.hpp>

#include "engine/convert.h"
#include "engine/memory_plan.h"
#include "engine/random_model.h"
#include "progress.h"
#include "report.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

std::string type_names() {
  std::string names;
  for (const DTypeInfo& type : all_dtypes())
    if (type.dtype != DType::kI32) names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

Result<DType> weight_type(const std::string& name) {
  auto type = dtype_from_name(name);
  if (!type || *type == DType::kI32)
    return errorf(ErrorCode::kInvalidArgument, "there is no weight type '{}'; there are {}", name, type_names());
  return *type;
}

// What there is to choose for --random.
void list_shapes(bool json) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string& name : shape_names()) {
    const ModelShape shape = *find_shape(name);
    const ModelConfig& c = shape.config;
    const auto parameters = shape_parameters(shape);
    if (!json)
      std::cout << fmt::format("{:<14} {:>8}  {} layers of {}, {} heads on {}, feed-forward {}{}, vocabulary {}\n",
                               name, count_text(parameters), c.layers.size(), c.dim, c.heads, c.kv_heads, c.ffn_dim,
                               c.experts > 0 ? fmt::format(" ({} of {} experts)", c.experts_per_token, c.experts) : "",
                               c.vocab_size);
    list.push_back({{"name", name}, {"family", c.family}, {"parameters", parameters}});
  }
  if (json) std::cout << list.dump(2) << "\n";
}

struct Quantize {
  std::string source, type, out, embedding, name;
  int threads = 0;
  bool random = false;
  uint64_t seed = 0;

  Status run(bool json) const {
    if (random && source == "list" && type.empty()) {
      list_shapes(json);
      return {};
    }
    if (out.empty())
      return errorf(ErrorCode::kInvalidArgument,
                    "quantize wants a {}, a weight type and a file to write, in this order",
                    random ? "shape ('--random list' shows them)" : "model");
    ConvertOptions options;
    GODWIT_ASSIGN(options.dtype, weight_type(type));
    if (!embedding.empty()) {
      GODWIT_ASSIGN(options.embedding_dtype, weight_type(embedding));
    }
    options.threads = threads;
    options.name = name;
    ProgressBar bar("quantize");
    options.on_progress = [&](double share) { bar.show(share); };
    GODWIT_ASSIGN(ConvertReport report, write(options));
    bar.clear();
    const double bits = static_cast<double>(report.bytes) * 8 / static_cast<double>(report.weights);
    if (json) {
      nlohmann::json exceptions = nlohmann::json::array();
      for (const auto& [tensor, dtype] : report.exceptions)
        exceptions.push_back({{"tensor", tensor}, {"type", dtype_name(dtype)}});
      const nlohmann::json result = {{"file", out},
                                     {"bytes", report.bytes},
                                     {"weights", report.weights},
                                     {"bits_per_weight", bits},
                                     {"exceptions", exceptions}};
      std::cout << json_text(result, 2) << "\n";
      return {};
    }
    std::cerr << fmt::format("{}: {} weights in {}, {:.2f} bits each\n", out, report.weights, bytes_text(report.bytes),
                             bits);
    for (const auto& [tensor, dtype] : report.exceptions)
      std::cerr << fmt::format("  {} is {}: its rows are no multiple of the block of the type asked for\n", tensor,
                               dtype_name(dtype));
    return {};
  }

  Result<ConvertReport> write(const ConvertOptions& options) const {
    if (random) {
      GODWIT_ASSIGN(ModelShape shape, find_shape(source));
      return write_random_model(shape, seed, options, out);
    }
    GODWIT_ASSIGN(ModelSource model, ModelSource::open(source));
    return convert_model(model, options, out);
  }
};

}  // namespace

void add_quantize(Program& program) {
  auto state = std::make_shared<Quantize>();
  CLI::App* verb = add_verb(program, "quantize", "Write a model as a GGUF file in another weight type");
  verb->add_option("model", state->source, "GGUF file or Hugging Face folder; with --random a shape");
  verb->add_option("type", state->type, type_names());
  verb->add_option("out", state->out, "GGUF file to write");
  auto* random = verb->add_flag("--random", state->random,
                                "Random weights in the shape of a public model; '--random list' shows which");
  verb->add_option("--seed", state->seed, "Same seed, same random weights")->capture_default_str()->needs(random);
  verb->add_option("--embedding-type", state->embedding, "Type of token embedding and output matrix (default: TYPE)");
  verb->add_option("--name", state->name, "The model's name in the file (default: what it had, or the folder's)");
  verb->add_option("-t,--threads", state->threads, "Threads (default: all cores)");
  verb->callback([&program, state] { program.run = [&program, state] { return state->run(program.json); }; });
}

}  // namespace godwit::cli
