#include "eval/load/report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace godwit::load {
namespace {

using nlohmann::ordered_json;

bool is_good(const Record& record, const Targets& targets) {
  return record.ok && (targets.ttft_seconds <= 0 || record.ttft() <= targets.ttft_seconds) &&
         (targets.per_token_seconds <= 0 || record.per_token() <= targets.per_token_seconds);
}

ordered_json percentiles(const Histogram& of) {
  return {{"p50", of.percentile(0.5)}, {"p90", of.percentile(0.9)}, {"p99", of.percentile(0.99)},
          {"mean", of.mean()},         {"max", of.most()},          {"count", of.count()}};
}

std::string row(std::string_view name, const Histogram& of) {
  return fmt::format("| {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |\n", name, of.percentile(0.5) * 1e3,
                     of.percentile(0.9) * 1e3, of.percentile(0.99) * 1e3, of.mean() * 1e3, of.most() * 1e3);
}

std::string targets_text(const Targets& targets) {
  std::string text;
  if (targets.ttft_seconds > 0) text = fmt::format("first token within {:g} ms", targets.ttft_seconds * 1e3);
  if (targets.per_token_seconds > 0)
    text += fmt::format("{}{:g} ms a token", text.empty() ? "" : ", ", targets.per_token_seconds * 1e3);
  return text;
}

}  // namespace

std::string stopped_text(const LoadRun& run) {
  return fmt::format("stopped before its end; {} requests that were open are not counted", *run.open_at_stop);
}

Summary summarize(const LoadRun& run, const Targets& targets) {
  Summary s;
  s.seconds = run.seconds;
  for (const Record& record : run.records) {
    if (!record.ok) {
      ++s.failed;
      continue;
    }
    ++s.answered;
    s.good += is_good(record, targets) ? 1 : 0;
    s.prompt_tokens += std::max<int64_t>(record.prompt_tokens, 0);
    s.cached_tokens += record.cached_tokens;
    s.output_tokens += record.output_tokens;
    s.ttft.add(record.ttft());
    s.end_to_end.add(record.end - record.sent);
    if (record.prompt_tokens > 0)
      (2 * record.cached_tokens >= record.prompt_tokens ? s.ttft_cached : s.ttft_cold).add(record.ttft());
  }
  // Some milliseconds are what any busy machine's timers are off by; they matter once they show in the figures.
  constexpr double kUsual = 0.005, kShare = 0.1;
  const double send = run.send_lag.percentile(0.99), loop = run.loop_lag.percentile(0.99);
  if (send > std::max(kUsual, kShare * s.ttft.percentile(0.5)))
    s.lagged = fmt::format("1% of the requests went out {:.0f} ms or more after their time", send * 1e3);
  else if (loop > std::max(kUsual, kShare * run.gaps.percentile(0.5)))
    s.lagged =
        fmt::format("1% of its timers rang {:.0f} ms or more too late, and tokens were read as late", loop * 1e3);
  return s;
}

ordered_json load_json(const LoadRun& run, const Summary& s, const Targets& targets, const Heading& heading) {
  ordered_json errors = ordered_json::array();
  for (const auto& [kind, failures] : run.failures)
    errors.push_back({{"kind", kind}, {"count", failures.count}, {"example", failures.example}});
  ordered_json json = {{"url", heading.url},
                       {"model", heading.model},
                       {"api", heading.api},
                       {"workload", heading.workload},
                       {"requests", run.records.size()},
                       {"answered", s.answered},
                       {"failed", s.failed},
                       {"errors", std::move(errors)},
                       {"seconds", s.seconds},
                       {"requests_per_second", s.per_second(s.answered)},
                       {"output_tokens_per_second", s.per_second(s.output_tokens)},
                       {"output_tokens", s.output_tokens},
                       {"prompt_tokens", s.prompt_tokens},
                       {"cached_tokens", s.cached_tokens},
                       {"tokens_counted_by", run.tokens_from_usage ? "usage" : "events"},
                       {"ttft_seconds", percentiles(s.ttft)},
                       {"ttft_cold_seconds", percentiles(s.ttft_cold)},
                       {"ttft_cached_seconds", percentiles(s.ttft_cached)},
                       {"inter_token_seconds", percentiles(run.gaps)},
                       {"end_to_end_seconds", percentiles(s.end_to_end)}};
  if (run.open_at_stop) json["stopped"] = {{"open_requests", *run.open_at_stop}};
  if (targets.any())
    json["goodput"] = {{"ttft_target_seconds", targets.ttft_seconds},
                       {"per_token_target_seconds", targets.per_token_seconds},
                       {"requests", s.good},
                       {"share", static_cast<double>(s.good) / static_cast<double>(run.records.size())},
                       {"requests_per_second", s.per_second(s.good)}};
  json["generator"] = {{"send_lag_seconds", percentiles(run.send_lag)},
                       {"loop_lag_seconds", percentiles(run.loop_lag)},
                       {"connections", run.connections},
                       {"kept_up", s.lagged.empty()}};
  return json;
}

std::string load_table(const LoadRun& run, const Summary& s, const Targets& targets, const Heading& heading) {
  std::string text = fmt::format(
      "{} ({}) at {}\n{}\n\n{} of {} requests answered in {:.1f} s: {:.2f} requests/s, {:.1f} output tokens/s\n"
      "{} prompt tokens, {} of them found in the server's cache; {} output tokens{}\n",
      heading.model, heading.api, heading.url, heading.workload, s.answered, run.records.size(), s.seconds,
      s.per_second(s.answered), s.per_second(s.output_tokens), s.prompt_tokens, s.cached_tokens, s.output_tokens,
      run.tokens_from_usage ? "" : " (the server does not count them: events are counted)");
  if (targets.any())
    text += fmt::format("goodput: {} requests ({:.1f}%), {:.2f} requests/s with {}\n", s.good,
                        100.0 * static_cast<double>(s.good) / static_cast<double>(run.records.size()),
                        s.per_second(s.good), targets_text(targets));
  if (run.open_at_stop) text += stopped_text(run) + "\n";
  for (const auto& [kind, failures] : run.failures)
    text += fmt::format("failed: {} x {}: {}\n", failures.count, kind, failures.example);
  text += "\n| milliseconds | p50 | p90 | p99 | mean | max |\n|---|---:|---:|---:|---:|---:|\n";
  text += row("time to first token", s.ttft);
  if (s.ttft_cold.count() > 0 && s.ttft_cached.count() > 0)
    text += row(fmt::format("… prompt not in the cache ({})", s.ttft_cold.count()), s.ttft_cold) +
            row(fmt::format("… half of it or more was ({})", s.ttft_cached.count()), s.ttft_cached);
  text += row("between tokens", run.gaps) + row("whole answer", s.end_to_end) +
          row("generator: requests late by", run.send_lag) + row("generator: timers late by", run.loop_lag);
  if (!s.lagged.empty())
    text +=
        fmt::format("\nThe generator did not keep up: {}. Give it a machine of its own, or less to do.\n", s.lagged);
  return text;
}

}  // namespace godwit::load
