// What a sweep found: its rows as JSON lines, means over texts, a table for the terminal and a page with plots.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "eval/sweep.h"

namespace godwit {

// One line of JSON for each row. A file that does not exist holds none; a last line that is cut off, as a program that
// was killed may leave it, is removed. Programs that do either at the same time wait for each other.
Result<std::vector<SweepRow>> read_sweep_rows(const std::string& path);
Status append_sweep_row(const std::string& path, const SweepRow& row);

// One method at one length, over all texts.
struct SweepSummary {
  SweepMethod method;
  int length = 0;
  struct Share {
    int asked = 0, right = 0;
    double share() const { return asked > 0 ? static_cast<double>(right) / asked : 0; }
  };
  Share known, late;
  std::map<std::string, Share> late_by_kind, known_by_kind;
  double kv_bytes_per_token = 0, mean_kl = 0, same_top = 0, mass_lost = 0, prefill_per_second = 0,
         decode_per_second = 0, seconds = 0;
};
std::vector<SweepSummary> summarize(const std::vector<SweepRow>& rows);  // in the order of the rows

nlohmann::json sweep_json(const std::vector<SweepSummary>& summaries);
std::string sweep_table(const std::vector<SweepSummary>& summaries);
// One self-contained page.
std::string sweep_html(const std::vector<SweepRow>& rows, std::string_view title);

}  // namespace godwit
