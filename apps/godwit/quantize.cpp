// godwit quantize: a Hugging Face folder or a GGUF file to a GGUF file of another weight type.
#include <iostream>

#include <nlohmann/json.hpp>

#include "engine/convert.h"
#include "engine/memory_plan.h"
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

struct Quantize {
  std::string source, type, out, embedding, name;
  int threads = 0;

  Status run(bool json) const {
    ConvertOptions options;
    GODWIT_ASSIGN(options.dtype, weight_type(type));
    if (!embedding.empty()) {
      GODWIT_ASSIGN(options.embedding_dtype, weight_type(embedding));
    }
    options.threads = threads;
    options.name = name;
    GODWIT_ASSIGN(ModelSource model, ModelSource::open(source));
    ProgressBar bar("quantize");
    options.on_progress = [&](double share) { bar.show(share); };
    GODWIT_ASSIGN(ConvertReport report, convert_model(model, options, out));
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
};

}  // namespace

void add_quantize(Program& program) {
  auto state = std::make_shared<Quantize>();
  CLI::App* verb = add_verb(program, "quantize", "Write a model as a GGUF file in another weight type");
  verb->add_option("model", state->source, "GGUF file or Hugging Face folder")->required();
  verb->add_option("type", state->type, type_names())->required();
  verb->add_option("out", state->out, "GGUF file to write")->required();
  verb->add_option("--embedding-type", state->embedding, "Type of token embedding and output matrix (default: TYPE)");
  verb->add_option("--name", state->name, "The model's name in the file (default: what it had, or the folder's)");
  verb->add_option("-t,--threads", state->threads, "Threads (default: all cores)");
  verb->callback([&program, state] { program.run = [&program, state] { return state->run(program.json); }; });
}

}  // namespace godwit::cli
