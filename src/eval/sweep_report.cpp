#include "eval/sweep_report.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include "base/json.h"
#include "base/result.h"

namespace godwit {
namespace {

nlohmann::json to_json(const SweepRow& row) {
  nlohmann::json answers = nlohmann::json::array();
  for (const SweepAnswer& a : row.answers)
    answers.push_back({{"kind", a.kind}, {"depth", a.depth}, {"known", a.known}, {"right", a.right}});
  return {{"key", row.key},
          {"codec", row.method.codec},
          {"policy", row.method.policy},
          {"budget", row.method.budget},
          {"trigger", row.method.trigger},
          {"length", row.length},
          {"sample", row.sample},
          {"kv_bytes_per_token", row.kv_bytes_per_token},
          {"mean_kl", row.mean_kl},
          {"same_top", row.same_top},
          {"mass_lost", row.mass_lost},
          {"prefill_per_second", row.prefill_per_second},
          {"decode_per_second", row.decode_per_second},
          {"seconds", row.seconds},
          {"answers", std::move(answers)}};
}

Result<SweepRow> row_from(const nlohmann::json& json, const std::string& where) {
  SweepRow row;
  GODWIT_ASSIGN(const JsonObject o, JsonObject::of(json, where));
  GODWIT_ASSIGN(row.key, o.get<std::string>("key"));
  GODWIT_ASSIGN(row.method.codec, o.get<std::string>("codec"));
  GODWIT_ASSIGN(row.method.policy, o.get<std::string>("policy"));
  GODWIT_ASSIGN(row.method.budget, o.get<std::string>("budget"));
  GODWIT_ASSIGN(row.method.trigger, o.get<std::string>("trigger"));
  GODWIT_ASSIGN(const int64_t length, o.get<int64_t>("length"));
  GODWIT_ASSIGN(const int64_t sample, o.get<int64_t>("sample"));
  row.length = static_cast<int>(length), row.sample = static_cast<int>(sample);
  GODWIT_ASSIGN(row.kv_bytes_per_token, o.get<double>("kv_bytes_per_token"));
  GODWIT_ASSIGN(row.mean_kl, o.get<double>("mean_kl"));
  GODWIT_ASSIGN(row.same_top, o.get<double>("same_top"));
  GODWIT_ASSIGN(row.mass_lost, o.get<double>("mass_lost"));
  GODWIT_ASSIGN(row.prefill_per_second, o.get<double>("prefill_per_second"));
  GODWIT_ASSIGN(row.decode_per_second, o.get<double>("decode_per_second"));
  GODWIT_ASSIGN(row.seconds, o.get<double>("seconds"));
  const auto answers = json.find("answers");
  if (answers == json.end() || !answers->is_array())
    return errorf(ErrorCode::kBadData, "{}: a row has no answers", where);
  for (const nlohmann::json& each : *answers) {
    SweepAnswer& answer = row.answers.emplace_back();
    GODWIT_ASSIGN(const JsonObject a, JsonObject::of(each, where));
    GODWIT_ASSIGN(answer.kind, a.get<std::string>("kind"));
    GODWIT_ASSIGN(answer.depth, a.get<double>("depth"));
    GODWIT_ASSIGN(answer.known, a.get<bool>("known"));
    GODWIT_ASSIGN(answer.right, a.get<bool>("right"));
  }
  return row;
}

// The file to oneself, for as long as this lives.
class LockedFile {
 public:
  LockedFile(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~LockedFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  bool is_open() const { return fd_ >= 0; }
  bool write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_, text.data(), text.size());
      if (written < 0 && errno != EINTR) return false;
      if (written > 0) text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }

 private:
  int fd_;
};

}  // namespace

Result<std::vector<SweepRow>> read_sweep_rows(const std::string& path) {
  std::vector<SweepRow> rows;
  std::error_code error;
  // A device may have no end.
  if (const auto kind = std::filesystem::status(path, error).type();
      kind != std::filesystem::file_type::regular && std::filesystem::exists(path, error))
    return errorf(ErrorCode::kInvalidArgument, "{}: rows are kept in a plain file, and this is none", path);
  const LockedFile lock(path, O_RDONLY);
  if (!lock.is_open() && errno == ENOENT) return rows;
  std::ifstream file(path, std::ios::binary);
  if (!file) return errorf(ErrorCode::kIo, "{}: cannot be read: {}", path, std::strerror(errno));
  std::string line;
  uintmax_t whole = 0;
  while (std::getline(file, line) && !file.eof()) {
    whole += line.size() + 1;
    GODWIT_ASSIGN(const nlohmann::json json,
                  parse_json(line, fmt::format("{}: row {}", path, rows.size() + 1), {.max_bytes = size_t{16} << 20}));
    GODWIT_ASSIGN(SweepRow row, row_from(json, path));
    rows.push_back(std::move(row));
  }
  error.clear();
  if (!line.empty()) std::filesystem::resize_file(path, whole, error);
  if (error)
    return errorf(ErrorCode::kIo, "{}: its last line is cut off and cannot be removed: {}", path, error.message());
  return rows;
}

Status append_sweep_row(const std::string& path, const SweepRow& row) {
  const std::string text = to_json(row).dump() + "\n";
  const LockedFile file(path, O_WRONLY | O_CREAT | O_APPEND);
  if (!file.is_open() || !file.write(text))
    return errorf(ErrorCode::kIo, "{}: cannot be written: {}", path, std::strerror(errno));
  return {};
}

std::vector<SweepSummary> summarize(const std::vector<SweepRow>& rows) {
  std::vector<SweepSummary> all;
  std::vector<double> texts;
  for (const SweepRow& row : rows) {
    size_t at = 0;
    while (at < all.size() && !(all[at].method == row.method && all[at].length == row.length)) ++at;
    if (at == all.size()) {
      all.emplace_back().method = row.method;
      all.back().length = row.length;
      texts.push_back(0);
    }
    SweepSummary& s = all[at];
    texts[at] += 1;
    for (const SweepAnswer& answer : row.answers) {
      for (SweepSummary::Share* share :
           {&(answer.known ? s.known : s.late), &(answer.known ? s.known_by_kind : s.late_by_kind)[answer.kind]}) {
        share->asked += 1;
        share->right += answer.right ? 1 : 0;
      }
    }
    // A running mean.
    auto mean = [&](double& to, double value) { to += (value - to) / texts[at]; };
    mean(s.kv_bytes_per_token, row.kv_bytes_per_token);
    mean(s.mean_kl, row.mean_kl);
    mean(s.same_top, row.same_top);
    mean(s.mass_lost, row.mass_lost);
    mean(s.prefill_per_second, row.prefill_per_second);
    mean(s.decode_per_second, row.decode_per_second);
    s.seconds += row.seconds;
  }
  return all;
}

nlohmann::json sweep_json(const std::vector<SweepSummary>& summaries) {
  nlohmann::json list = nlohmann::json::array();
  for (const SweepSummary& s : summaries) {
    nlohmann::json row = {{"codec", s.method.codec},
                          {"policy", s.method.policy},
                          {"budget", s.method.budget},
                          {"trigger", s.method.trigger},
                          {"length", s.length},
                          {"kv_bytes_per_token", s.kv_bytes_per_token},
                          {"mean_kl", s.mean_kl},
                          {"same_top", s.same_top},
                          {"mass_lost", s.mass_lost},
                          {"prefill_per_second", s.prefill_per_second},
                          {"decode_per_second", s.decode_per_second},
                          {"seconds", s.seconds}};
    for (auto [name, share, kinds] :
         {std::tuple{"known", &s.known, &s.known_by_kind}, std::tuple{"late", &s.late, &s.late_by_kind}}) {
      if (share->asked == 0) continue;
      row[name] = {{"asked", share->asked}, {"right", share->right}, {"recall", share->share()}};
      for (const auto& [kind, part] : *kinds)
        row[name]["kinds"][kind] = {{"asked", part.asked}, {"right", part.right}, {"recall", part.share()}};
    }
    list.push_back(std::move(row));
  }
  return list;
}

std::string sweep_table(const std::vector<SweepSummary>& summaries) {
  std::string text = fmt::format("{:<28} {:>7} {:>7} {:>10} {:>6} {:>6} {:>7} {:>6} {:>9} {:>9}\n", "method", "budget",
                                 "length", "bytes/tok", "known", "late", "KL", "lost", "prefill/s", "decode/s");
  for (const SweepSummary& s : summaries) {
    auto share = [](const SweepSummary::Share& x) { return x.asked > 0 ? fmt::format("{:.2f}", x.share()) : "-"; };
    text +=
        fmt::format("{:<28} {:>7} {:>7} {:>10.0f} {:>6} {:>6} {:>7.4f} {:>5.1f}% {:>9.0f} {:>9.1f}\n", s.method.name(),
                    s.method.budget.empty() ? "-" : s.method.budget, s.length, s.kv_bytes_per_token, share(s.known),
                    share(s.late), s.mean_kl, s.mass_lost * 100, s.prefill_per_second, s.decode_per_second);
  }
  return text;
}

}  // namespace godwit
