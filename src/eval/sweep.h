// A sweep: what KV methods keep of a model's abilities, over methods × lengths, and what they cost.
//
// For each text of each length, full attention with an f32 cache is run once and is what counts as right. Then every
// method reads the text once: questions that are known are asked from a fork that was not compressed yet, late ones
// from forks of the compressed cache, and so are the text's continuation (divergence) and a generation (speed). Answers
// are scored, unless there is a planner for tokens that are generated: then they are, greedily. The continuation is
// always read, so that divergence says nothing about that planner.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <godwit/engine.h>

namespace godwit {

struct SweepMethod {
  std::string codec = "f16";
  std::string policy, budget, trigger;  // as EngineOptions has them; empty: none, the policy's own

  std::string name() const;  // "snapkv:kernel=31, q8"; "full" without a policy
  bool operator==(const SweepMethod&) const = default;
};

// Every method of a sweep: each policy × budget × codec, each codec alone, and the baselines random and streaming.
// Policies that take no budget come once. Empty `policies`: all that work without further settings; "none" alone: no
// policy, so that each codec is measured alone. `only`: what is named and nothing that comes along.
Result<std::vector<SweepMethod>> sweep_methods(const std::vector<std::string>& policies,
                                               const std::vector<std::string>& budgets,
                                               const std::vector<std::string>& codecs, const std::string& trigger,
                                               bool only = false);

struct SweepOptions {
  EngineOptions engine;  // model, threads and the like; what a method says comes on top
  std::vector<SweepMethod> methods;
  std::vector<int> lengths = {8192};
  std::vector<std::string> kinds = {"number", "hex", "lives", "keeps"};  // see recall.h
  int facts = 24;                                                        // in each text
  int samples = 1;                                                       // texts of each length
  bool known = true, late = true;                                        // when questions are asked
  uint64_t seed = 1;
  // A folder for what full attention makes of each text, so that later sweeps of the same texts need not run it again;
  // empty: none.
  std::string full_folder{};
};

struct SweepAnswer {
  std::string kind;
  double depth = 0;  // of the fact in the text, from 0 to 1
  bool known = false, right = false;
};

// What one method did on one text.
struct SweepRow {
  std::string key;  // everything that the figures depend on
  SweepMethod method;
  int length = 0, sample = 0;
  std::vector<SweepAnswer> answers;
  double kv_bytes_per_token = 0;     // resident once the text was read and compressed, positions included
  double mean_kl = 0, same_top = 0;  // on how the text goes on, to full attention with an f32 cache
  double mass_lost = 0;              // of full attention's mass there, what lies on dropped entries
  double prefill_per_second = 0, decode_per_second = 0;  // tokens; compression included, generation after the text
  double seconds = 0;                                    // that all of this took
};

// Runs what `done` does not hold yet; rows of both are returned, in the order of lengths, samples and methods. `on_row`
// gets each new one as soon as it is there, `on_progress` the share of the work that is done.
Result<std::vector<SweepRow>> run_sweep(const SweepOptions& options, std::string_view text,
                                        const std::vector<SweepRow>& done,
                                        const std::function<Status(const SweepRow&)>& on_row,
                                        const std::function<void(double share, const SweepMethod& now)>& on_progress,
                                        std::stop_token stop = {});

}  // namespace godwit
