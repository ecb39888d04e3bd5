// Counts and distributions for Prometheus, under the names that dashboards of other engines know where the meaning is
// the same. All members from any thread.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "server/reply.h"
#include <godwit/service.h>

namespace godwit::server {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  void write(std::string& out, std::string_view name, std::string_view help, std::string_view labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  double sum_ = 0;
};

// When things happened to one answer.
struct AnswerTimes {
  double waited = 0, first_token = 0, end = 0;  // seconds since the request was submitted
};

class Metrics {
 public:
  Metrics();
  void answer_over(const ServiceAnswer& answer, const AnswerTimes& times);
  void token_after(double seconds);  // since the token before it
  void request_over(const RequestRecord& record, std::string_view route);

  // `service` null: still loading.
  std::string text(std::string_view model, const ServiceStats* service) const;

 private:
  mutable std::mutex mutex_;
  Histogram first_token_, inter_token_, end_to_end_, queue_, prefill_, decode_, prompt_tokens_, output_tokens_;
  std::map<std::string, uint64_t> finished_;                  // by reason
  std::map<std::pair<std::string, int>, uint64_t> requests_;  // by route and status
  uint64_t prompt_tokens_total_ = 0, cached_tokens_total_ = 0, gone_ = 0;
};

std::string_view finish_name(FinishReason reason);  // "stop", "length", "abort"

}  // namespace godwit::server
