#include "report.h"

#include <cstdio>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/memory_plan.h"

namespace godwit::cli {
namespace {

const char* finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kKvExhausted:
      return "kv_exhausted";
    case FinishReason::kContextFull:
      return "context_full";
  }
  return "";
}

// The first token comes out of the prefill; the rate counts those after it.
double decode_rate(const Generation& g) {
  return g.tokens.size() > 1 && g.decode_seconds > 0 ? static_cast<double>(g.tokens.size() - 1) / g.decode_seconds : 0;
}

double prefill_rate(const Generation& g) {
  return g.prefill_seconds > 0 ? g.prompt_tokens / g.prefill_seconds : 0;
}

}  // namespace

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string count_text(uint64_t count) {
  const char* units[] = {"", " K", " M", " B", " T"};
  auto value = static_cast<double>(count);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(units)) value /= 1000, ++unit;
  return fmt::format("{:.3g}{}", value, units[unit]);
}

Status early_end(const Generation& answer) {
  if (answer.finish == FinishReason::kKvExhausted)
    return errorf(ErrorCode::kExhausted,
                  "the answer breaks off after {} tokens: the KV memory is full; raise --kv-memory",
                  answer.tokens.size());
  return {};
}

void note_full_context(const Engine& engine, const Generation& answer) {
  if (answer.finish == FinishReason::kContextFull)
    std::fputs(fmt::format("the context of {} tokens is full; --ctx sets its length, as far as the model goes\n",
                           engine.info().context_tokens)
                   .c_str(),
               stderr);
}

nlohmann::json generation_json(const Engine& engine, const Session& session, const Generation& answer) {
  const EngineInfo info = engine.info();
  nlohmann::json report = {{"text", answer.text},
                           {"tokens", answer.tokens},
                           {"finish_reason", finish_name(answer.finish)},
                           {"prompt_tokens", answer.prompt_tokens},
                           {"completion_tokens", answer.tokens.size()},
                           {"prefill_seconds", answer.prefill_seconds},
                           {"prefill_tokens_per_second", prefill_rate(answer)},
                           {"decode_seconds", answer.decode_seconds},
                           {"decode_tokens_per_second", decode_rate(answer)},
                           {"kv_bytes", session.kv_bytes()},
                           {"kv_codec", info.kv_codec},
                           {"kv_policy", info.kv_policy},
                           {"context_tokens", info.context_tokens},
                           {"model", info.model},
                           {"backend", info.backend}};
  if (info.ranks > 1) {
    report["ranks"] = info.ranks;
    report["prefill_ranks"] = info.prefill_ranks;
    report["decode_ranks"] = info.decode_ranks;
    report["ring"] = info.ring;
  }
  return report;
}

void print_stats(const Engine& engine, const Session& session, const Generation& answer) {
  const EngineInfo info = engine.info();
  std::fprintf(stderr,
               "\n%-22s %s\n%-22s %d tokens in %.2f s (%.0f tok/s)\n%-22s %.2f s\n%-22s %zu tokens, %.1f tok/s\n"
               "%-22s %s (%s, %.0f bytes per token)\n",
               "back-end", info.backend.c_str(), "prompt", answer.prompt_tokens, answer.prefill_seconds,
               prefill_rate(answer), "time to first token", answer.prefill_seconds, "answer", answer.tokens.size(),
               decode_rate(answer), "KV memory", bytes_text(session.kv_bytes()).c_str(), info.kv_codec.c_str(),
               info.kv_bytes_per_token);
  if (info.ranks > 1)
    std::fprintf(stderr, "%-22s %d (prompt %d, answer %d), last step %s\n", "ranks", info.ranks, info.prefill_ranks,
                 info.decode_ranks, info.ring.c_str());
}

}  // namespace godwit::cli
