// Plans for people and programs: an aligned table, JSON, and a page with plots.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/plan.h"

namespace godwit::plan {

// One line: a prompt on one set of degrees.
struct PlanRow {
  int64_t new_tokens = 0, cached_tokens = 0;
  PlanResult result;
};

struct PlanTargets {
  std::optional<double> ttft_s, ttit_s;
};

// What all lines have in common.
struct PlanReport {
  PlanModel model;
  Device device;
  Link link;
  std::string kv_codec;
  PlanTargets targets;
  std::vector<PlanRow> rows;
};

std::string plan_table(const PlanReport& report);
// Where the time of one line goes, by operator.
std::string ops_table(const PlanRow& row);
nlohmann::ordered_json plan_json(const PlanReport& report);
// One self-contained page.
std::string plan_html(const PlanReport& report);

std::string seconds_text(double seconds);  // "42.0 s", "46.3 ms", "12.5 us"

}  // namespace godwit::plan
