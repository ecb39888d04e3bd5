// What a load run found: figures, a table for the terminal, JSON, and a page with plots.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "eval/load/run.h"

namespace godwit::load {

struct Targets {
  double ttft_seconds = 0, per_token_seconds = 0;  // 0: none
  bool any() const { return ttft_seconds > 0 || per_token_seconds > 0; }
};

struct Summary {
  int64_t answered = 0, failed = 0, good = 0;  // good: answered within the targets
  double seconds = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // of answers
  Histogram ttft, end_to_end;
  Histogram ttft_cold, ttft_cached;  // by whether half of the prompt or more was in the server's cache
  // Whether the generator was so late itself that its figures are not the server's: the reason, or empty.
  std::string lagged;

  double per_second(int64_t count) const { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }
};

Summary summarize(const LoadRun& run, const Targets& targets);
std::string stopped_text(const LoadRun& run);  // of one that was stopped

// What the report begins with; all given by who ran it.
struct Heading {
  std::string url, model, api, workload;
};

nlohmann::ordered_json load_json(const LoadRun& run, const Summary& summary, const Targets& targets,
                                 const Heading& heading);
std::string load_table(const LoadRun& run, const Summary& summary, const Targets& targets, const Heading& heading);
// One self-contained page.
std::string load_html(const LoadRun& run, const Summary& summary, const Targets& targets, const Heading& heading);

}  // namespace godwit::load
