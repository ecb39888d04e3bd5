#include "plan/report.h"

#include <algorithm>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "engine/memory_plan.h"

namespace godwit::plan {
namespace {

using ordered_json = nlohmann::ordered_json;
using Cells = std::vector<std::string>;

// Markdown whose columns also line up in a terminal; the first `left` columns to the left.
std::string aligned(const std::vector<Cells>& lines, size_t left) {
  std::vector<size_t> widths(lines.front().size(), 0);
  for (const Cells& line : lines)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string text;
  for (size_t row = 0; row < lines.size(); ++row) {
    text += "|";
    for (size_t i = 0; i < widths.size(); ++i)
      text += i < left ? fmt::format(" {:<{}} |", lines[row][i], widths[i])
                       : fmt::format(" {:>{}} |", lines[row][i], widths[i]);
    text += "\n";
    if (row > 0) continue;
    text += "|";
    for (size_t i = 0; i < widths.size(); ++i)
      text += i < left ? std::string(widths[i] + 2, '-') + "|" : std::string(widths[i] + 1, '-') + ":|";
    text += "\n";
  }
  return text;
}

std::string percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

// Descriptions may make absurd demands, more than an integer holds.
std::string amount(double bytes) {
  return bytes_text(static_cast<uint64_t>(std::min(bytes, 1e18)));
}

std::string memory_text(const PlanResult& r) {
  return amount(r.memory.total());
}

// Lines of one prompt, in the order in which prompts came first.
std::vector<std::vector<const PlanRow*>> by_prompt(const std::vector<PlanRow>& rows) {
  std::vector<std::vector<const PlanRow*>> groups;
  for (const PlanRow& row : rows) {
    auto same = [&](const auto& group) {
      return group.front()->new_tokens == row.new_tokens && group.front()->cached_tokens == row.cached_tokens;
    };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end())
      groups.push_back({&row});
    else
      found->push_back(&row);
  }
  return groups;
}

struct Choice {
  const PlanRow* prompt = nullptr;
  std::string target;
  std::optional<PlanResult> result;
};

// For every prompt and target the cheapest line, prefill and decode apart: their degrees may differ.
std::vector<Choice> choices(const PlanReport& report) {
  std::vector<Choice> all;
  for (const auto& group : by_prompt(report.rows)) {
    std::vector<PlanResult> results;
    for (const PlanRow* row : group) results.push_back(row->result);
    auto choose = [&](std::string target, std::optional<double> ttft, std::optional<double> ttit) {
      const PlanResult* best = cheapest(results, ttft, ttit);
      all.push_back({group.front(), std::move(target), best ? std::optional(*best) : std::nullopt});
    };
    const PlanTargets& t = report.targets;
    if (t.ttft_s) choose(fmt::format("TTFT of {}", seconds_text(*t.ttft_s)), t.ttft_s, {});
    if (t.ttit_s) choose(fmt::format("TTIT of {}", seconds_text(*t.ttit_s)), {}, t.ttit_s);
    if (t.ttft_s && t.ttit_s) choose("both at once", t.ttft_s, t.ttit_s);
  }
  return all;
}

std::string choice_text(const Choice& choice) {
  const std::string prompt =
      choice.prompt->cached_tokens > 0
          ? fmt::format("{} tokens after {}", choice.prompt->new_tokens, choice.prompt->cached_tokens)
          : fmt::format("{} tokens", choice.prompt->new_tokens);
  if (!choice.result)
    return fmt::format("{}, {}: none of these degrees reaches it and fits; try others with --cp and --tp\n", prompt,
                       choice.target);
  const PlanResult& r = *choice.result;
  return fmt::format("{}, {}: TP{} x CP{}, {} device{} (TTFT {}, TTIT {})\n", prompt, choice.target, r.tp, r.cp,
                     r.devices(), r.devices() == 1 ? "" : "s", seconds_text(r.prefill.seconds),
                     seconds_text(r.decode.seconds));
}

// "5 published, 5 fitted"
std::string sources_text(const std::vector<Constant>& constants) {
  std::map<std::string, Cells> keys;
  for (const Constant& c : constants) keys[c.source].push_back(c.key);
  Cells parts;
  for (const auto& [source, names] : keys)
    parts.push_back(source == "published" || source == "measured"
                        ? fmt::format("{} {}", names.size(), source)
                        : fmt::format("{} {} ({})", names.size(), source, fmt::join(names, ", ")));
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool uses_link(const PlanReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(), [&](const PlanRow& row) {
    return row.result.cp > 1 || row.result.tp > report.device.node_devices;
  });
}

ordered_json constants_json(const std::string& name, const std::string& description,
                            const std::vector<Constant>& constants) {
  ordered_json json = {{"name", name}, {"description", description}};
  for (const Constant& c : constants)
    json["constants"][c.key] = {{"value", c.value}, {"source", c.source}, {"note", c.note}};
  return json;
}

ordered_json phase_json(const Phase& phase) {
  ordered_json ops = ordered_json::array();
  for (const OpTime& op : phase.ops)
    ops.push_back({{"operator", op.name}, {"flops", op.flops}, {"bytes", op.bytes}, {"seconds", op.seconds}});
  return {{"seconds", phase.seconds},
          {"waiting_seconds", phase.waiting_s},
          {"all_reduce_seconds", phase.all_reduce_s},
          {"sent_bytes_per_lane", phase.sent_bytes},
          {"operators", std::move(ops)}};
}

ordered_json row_json(const PlanRow& row) {
  const PlanResult& r = row.result;
  return {{"new_tokens", row.new_tokens},
          {"cached_tokens", row.cached_tokens},
          {"tp", r.tp},
          {"cp", r.cp},
          {"devices", r.devices()},
          {"mode", r.mode()},
          {"ttft_seconds", r.prefill.seconds},
          {"ttit_seconds", r.decode.seconds},
          {"efficiency", r.efficiency},
          {"fits", r.fits},
          {"longest_context_tokens", r.longest_context},
          {"memory_bytes",
           {{"total", r.memory.total()},
            {"weights", r.memory.weights},
            {"kv", r.memory.kv},
            {"ring_buffers", r.memory.ring},
            {"activations", r.memory.activations}}},
          {"prefill", phase_json(r.prefill)},
          {"decode", phase_json(r.decode)}};
}

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds >= 100) return fmt::format("{:.0f} s", seconds);
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string plan_table(const PlanReport& report) {
  std::vector<Cells> lines = {{"new tokens", "cached", "degrees", "attention", "TTFT", "tokens/s", "waiting",
                               "efficiency", "TTIT", "memory each", "longest context"}};
  for (const PlanRow& row : report.rows) {
    const PlanResult& r = row.result;
    lines.push_back({std::to_string(row.new_tokens), std::to_string(row.cached_tokens),
                     fmt::format("TP{} x CP{}", r.tp, r.cp), r.mode(), seconds_text(r.prefill.seconds),
                     fmt::format("{:.0f}", static_cast<double>(row.new_tokens) / r.prefill.seconds),
                     percent(r.prefill.waiting_s / r.prefill.seconds), percent(r.efficiency),
                     seconds_text(r.decode.seconds), memory_text(r) + (r.fits ? "" : ", too much"),
                     r.longest_context > 0 ? std::to_string(r.longest_context) : "none"});
  }
  std::string text = fmt::format("{}, {} of weights, KV in {}; {}\n\n", report.model.name,
                                 amount(report.model.weight_bytes), report.kv_codec, report.device.description);
  text += aligned(lines, 4);
  const std::vector<Choice> all = choices(report);
  if (!all.empty()) text += "\n";
  for (const Choice& choice : all) text += choice_text(choice);
  text += fmt::format("\nConstants of {}: {}.\n", report.device.name, sources_text(report.device.constants));
  if (uses_link(report))
    text += fmt::format("Constants of {}: {}.\n", report.link.name, sources_text(report.link.constants));
  const bool too_much =
      std::any_of(report.rows.begin(), report.rows.end(), [](const PlanRow& r) { return !r.result.fits; });
  if (too_much)
    text += fmt::format(
        "A device has {}; where that is too little, add devices, lower --chunk or choose a smaller --kv-codec.\n",
        amount(report.device.memory_bytes));
  const bool beyond = std::any_of(report.rows.begin(), report.rows.end(), [&](const PlanRow& row) {
    return row.new_tokens + row.cached_tokens > report.model.config.context_length;
  });
  if (beyond) text += fmt::format("The model was made for {} tokens.\n", report.model.config.context_length);
  return text;
}

std::string ops_table(const PlanRow& row) {
  std::string text;
  for (const auto& [title, phase] :
       {std::pair("prompt", &row.result.prefill), std::pair("token", &row.result.decode)}) {
    std::vector<Cells> lines = {{title, "time", "share", "TFLOP", "GB", "FLOP/byte"}};
    for (const OpTime& op : phase->ops)
      lines.push_back({op.name, seconds_text(op.seconds), percent(op.seconds / phase->seconds),
                       op.flops > 0 ? fmt::format("{:.3g}", op.flops / 1e12) : "",
                       op.bytes > 0 ? fmt::format("{:.3g}", op.bytes / 1e9) : "",
                       op.flops > 0 && op.bytes > 0 ? fmt::format("{:.3g}", op.flops / op.bytes) : ""});
    lines.push_back(
        {"waiting", seconds_text(phase->waiting_s), percent(phase->waiting_s / phase->seconds), "", "", ""});
    const int64_t context = row.new_tokens + row.cached_tokens;
    text +=
        fmt::format("\nTP{} x CP{} {}, {}, on one device of the busiest rank:\n\n", row.result.tp, row.result.cp,
                    row.result.mode(),
                    phase == &row.result.prefill ? fmt::format("{} tokens after {}", row.new_tokens, row.cached_tokens)
                                                 : fmt::format("one token after {}", context)) +
        aligned(lines, 1);
  }
  return text;
}

nlohmann::ordered_json plan_json(const PlanReport& report) {
  ordered_json json;
  json["model"] = {{"name", report.model.name},
                   {"parameters", report.model.parameters},
                   {"weight_bytes", report.model.weight_bytes}};
  json["kv_codec"] = report.kv_codec;
  json["hardware"] = constants_json(report.device.name, report.device.description, report.device.constants);
  json["link"] = uses_link(report) ? constants_json(report.link.name, report.link.description, report.link.constants)
                                   : ordered_json(nullptr);
  json["rows"] = ordered_json::array();
  for (const PlanRow& row : report.rows) json["rows"].push_back(row_json(row));
  json["targets"] = ordered_json::array();
  for (const Choice& c : choices(report)) {
    ordered_json choice = {
        {"new_tokens", c.prompt->new_tokens}, {"cached_tokens", c.prompt->cached_tokens}, {"target", c.target}};
    choice["tp"] = c.result ? ordered_json(c.result->tp) : ordered_json(nullptr);
    choice["cp"] = c.result ? ordered_json(c.result->cp) : ordered_json(nullptr);
    json["targets"].push_back(std::move(choice));
  }
  return json;
}

}  // namespace godwit::plan
