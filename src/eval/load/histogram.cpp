#include "eval/load/histogram.h"

#include <algorithm>
#include <cmath>

namespace godwit::load {
namespace {

constexpr double kLeast = 1e-6, kGreatest = 1e6, kGrowth = 1.01;  // seconds; what is outside counts as at the edge

size_t bucket_of(double seconds) {
  return static_cast<size_t>(std::log(std::clamp(seconds, kLeast, kGreatest) / kLeast) / std::log(kGrowth));
}

}  // namespace

void Histogram::add(double seconds) {
  seconds = std::max(seconds, 0.0);
  const size_t bucket = bucket_of(seconds);
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  ++buckets_[bucket];
  least_ = count_ == 0 ? seconds : std::min(least_, seconds);
  most_ = std::max(most_, seconds);
  sum_ += seconds;
  ++count_;
}

double Histogram::value_of(size_t bucket) const {
  const double middle = kLeast * std::pow(kGrowth, static_cast<double>(bucket) + 0.5);
  return std::clamp(middle, least_, most_);
}

double Histogram::percentile(double share) const {
  if (count_ == 0) return 0;
  const auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(share * static_cast<double>(count_))));
  if (rank >= count_) return most_;
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i)
    if ((seen += buckets_[i]) >= rank) return value_of(i);
  return most_;
}

std::vector<std::pair<double, double>> Histogram::cdf() const {
  std::vector<std::pair<double, double>> points;
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] == 0) continue;
    seen += buckets_[i];
    points.emplace_back(value_of(i), static_cast<double>(seen) / static_cast<double>(count_));
  }
  return points;
}

}  // namespace godwit::load
