#include "kv/select.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace godwit {
namespace {

constexpr size_t kSafeguard = 5;  // one fifth

// Slots that may be kept, best first.
class Ranking {
 public:
  explicit Ranking(const ScoredHead& head) : head_(head) {
    for (uint32_t i = 0; i < head.scores.size(); ++i)
      if (head.scores[i] != -std::numeric_limits<float>::infinity()) order_.push_back(i);
    std::sort(order_.begin(), order_.end(),
              [&](uint32_t a, uint32_t b) { return score(a) != score(b) ? score(a) > score(b) : a > b; });
  }

  size_t size() const { return order_.size(); }
  float score_at(size_t rank) const { return score(order_[rank]); }
  int32_t position_at(size_t rank) const { return head_.positions[order_[rank]]; }
  std::vector<uint32_t> best(size_t count) const {
    std::vector<uint32_t> kept(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(count));
    std::sort(kept.begin(), kept.end());
    return kept;
  }

 private:
  // A broken model's NaN is the worst there is.
  float score(uint32_t slot) const {
    const float value = head_.scores[slot];
    return std::isnan(value) ? std::numeric_limits<float>::lowest() : value;
  }

  const ScoredHead& head_;
  std::vector<uint32_t> order_;
};

// How many slots each head of a pool keeps when all compete for `total`.
std::vector<size_t> compete(std::span<const Ranking> heads, size_t total, size_t safeguard, size_t granule) {
  struct Candidate {
    float score;
    int32_t position;
    uint32_t head;
  };
  std::vector<size_t> counts;
  std::vector<Candidate> rest;
  size_t taken = 0;
  for (uint32_t h = 0; h < heads.size(); ++h) {
    counts.push_back(std::min(heads[h].size(), safeguard));
    taken += (counts.back() + granule - 1) / granule * granule;
    for (size_t rank = counts.back(); rank < heads[h].size(); ++rank)
      rest.push_back({heads[h].score_at(rank), heads[h].position_at(rank), h});
  }
  const size_t open = std::min(total - std::min(total, taken), rest.size());
  std::nth_element(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(open), rest.end(),
                   [](const Candidate& a, const Candidate& b) {
                     if (a.score != b.score) return a.score > b.score;
                     return a.position != b.position ? a.position > b.position : a.head < b.head;
                   });
  for (size_t i = 0; i < open; ++i) ++counts[rest[i].head];
  return counts;
}

}  // namespace

std::vector<size_t> deal(size_t total, std::span<const double> demands, std::span<const size_t> caps) {
  const size_t n = demands.size();
  std::vector<size_t> parts(n, 0);
  std::vector<double> wanted(demands.begin(), demands.end());
  if (std::all_of(wanted.begin(), wanted.end(), [](double d) { return !(d > 0); })) wanted.assign(n, 1);
  std::vector<bool> full(n, false);
  size_t left = std::min(total, std::accumulate(caps.begin(), caps.end(), size_t{0}));
  for (bool again = true; again;) {  // who wants more than it can take gets that, and the others share what is left
    again = false;
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += full[i] ? 0 : wanted[i];
    const size_t before = left;
    for (size_t i = 0; i < n; ++i) {
      if (full[i] || static_cast<double>(before) * wanted[i] < static_cast<double>(caps[i]) * sum) continue;
      parts[i] = std::min(caps[i], left);
      left -= parts[i];
      full[i] = again = true;
    }
    if (again) continue;
    std::vector<std::pair<double, size_t>> fractions;
    size_t dealt = 0;
    for (size_t i = 0; i < n; ++i) {
      if (full[i]) continue;
      const double part = sum > 0 ? static_cast<double>(left) * wanted[i] / sum : 0;
      parts[i] = static_cast<size_t>(part);
      dealt += parts[i];
      fractions.emplace_back(static_cast<double>(parts[i]) - part, i);  // the largest fraction first
    }
    std::sort(fractions.begin(), fractions.end());
    for (size_t i = 0; dealt < left && !fractions.empty(); i = (i + 1) % fractions.size()) {
      if (parts[fractions[i].second] == caps[fractions[i].second]) continue;
      ++parts[fractions[i].second];
      ++dealt;
    }
  }
  return parts;
}

std::vector<std::vector<uint32_t>> select_slots(std::span<const ScoredHead> heads, const KvShape& shape,
                                                const KvSelection& selection) {
  const auto layers = static_cast<size_t>(shape.layers), per_layer = static_cast<size_t>(shape.kv_heads);
  const size_t granule = selection.granule;
  GODWIT_CHECK(heads.size() == layers * per_layer && selection.demands.size() == layers);
  GODWIT_CHECK(selection.slots_per_head >= granule && granule > 0);
  const std::vector<Ranking> rankings(heads.begin(), heads.end());
  std::vector<size_t> counts;
  const size_t safeguard = std::max(granule, selection.slots_per_head / kSafeguard / granule * granule);
  if (selection.split == KvBudget::Split::kAll) {
    counts = compete(rankings, selection.slots_per_head * heads.size(), safeguard, granule);
  } else {
    std::vector<size_t> caps(layers, 0);
    for (size_t h = 0; h < heads.size(); ++h) caps[h / per_layer] += rankings[h].size();
    const std::vector<size_t> totals = deal(selection.slots_per_head * heads.size(), selection.demands, caps);
    for (size_t layer = 0; layer < layers; ++layer) {
      const std::span<const Ranking> pool = std::span(rankings).subspan(layer * per_layer, per_layer);
      if (selection.split == KvBudget::Split::kLayer) {
        const auto share = compete(pool, totals[layer], std::min(safeguard, totals[layer] / per_layer), granule);
        counts.insert(counts.end(), share.begin(), share.end());
      } else {
        for (const Ranking& head : pool) counts.push_back(std::min(head.size(), totals[layer] / per_layer));
      }
    }
  }
  std::vector<std::vector<uint32_t>> kept;
  for (size_t h = 0; h < heads.size(); ++h) {
    // A last page that is not full is there only where the budget has a whole one for it.
    const bool whole = counts[h] <= safeguard && counts[h] == rankings[h].size();
    kept.push_back(rankings[h].best(whole ? counts[h] : counts[h] / granule * granule));
  }
  return kept;
}

}  // namespace godwit
