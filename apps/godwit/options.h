// Options that several verbs share, and how their texts become values.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <godwit/engine.h>

namespace godwit::cli {

// -m, --threads, --ctx, --kv-codec, …
struct ModelFlags {
  EngineOptions options;
  std::string kv_memory, chat_template_file, link;
  CLI::App* ranks_group = nullptr;  // null: without those options
  void add_to(CLI::App& verb);
  void add_model_to(CLI::App& group);  // all but the KV options
  void add_ranks_to(CLI::App& verb);   // for mpirun
  // What was given, files read.
  Result<EngineOptions> read() const;
  // Opens the engine; on a terminal it shows the progress.
  Result<Engine> open() const;
};

// -n, --temperature, --top-p, --stop, …
struct GenerateFlags {
  GenerateOptions options;
  std::vector<std::string> logit_bias;  // ID=VALUE
  CLI::App* group = nullptr;
  void add_to(CLI::App& verb);
  Result<GenerateOptions> read() const;
  // What was not given is as the model's file recommends it.
  void take_recommended(const Engine& engine, SamplingOptions& sampling) const;
};

// --kv-codec, --kv-policy, --kv-budget, --kv-trigger, --kv-memory, --prefill, --decode
void add_map_weights(CLI::App& to, EngineOptions& options);
void add_kv_options(CLI::App& to, EngineOptions& options, std::string& kv_memory);

// Refuses an empty text, which is what an unset shell variable leaves.
extern const CLI::Validator kNotEmpty;

// A number in a range; unlike CLI::Range, NaN is in none.
CLI::Validator real_between(double least, double most);

// "2GiB", "512MiB", "1000000" to bytes.
Result<uint64_t> parse_bytes(const std::string& text);
// A file's bytes; "-" is stdin.
Result<std::string> read_input(const std::string& path);

}  // namespace godwit::cli
