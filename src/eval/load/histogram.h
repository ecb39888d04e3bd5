// Latencies by the million in a few kilobytes: buckets that grow by 1%, so a percentile is right within half of that.
// Mean, least and greatest are exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace godwit::load {

class Histogram {
 public:
  void add(double seconds);

  uint64_t count() const { return count_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  double most() const { return most_; }
  // The value that `share` (0 to 1) of all do not exceed: the nearest rank. 0 where there is none.
  double percentile(double share) const;
  // (seconds, share of all that take no longer), rising; of every bucket that has any.
  std::vector<std::pair<double, double>> cdf() const;

 private:
  double value_of(size_t bucket) const;

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  double sum_ = 0, least_ = 0, most_ = 0;
};

}  // namespace godwit::load
