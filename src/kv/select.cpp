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
    order_.reserve(head.scores.size());
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

// How many granules of slots each head of a pool keeps when all compete for `total` of them. A granule is worth what
// its best slot is.
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
    const size_t has = (heads[h].size() + granule - 1) / granule;
    counts.push_back(std::min(has, safeguard));
    taken += counts.back();
    for (size_t i = counts.back(); i < has; ++i)
      rest.push_back({heads[h].score_at(i * granule), heads[h].position_at(i * granule), h});
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
  GODWIT_CHECK(granule > 0 && selection.slots_per_head >= granule);
  const std::vector<Ranking> rankings(heads.begin(), heads.end());
  const size_t share = selection.slots_per_head / granule;  // from here on in granules
  const size_t safeguard = std::max<size_t>(1, share / kSafeguard);
  std::vector<size_t> counts;
  if (selection.split == KvBudget::Split::kAll) {
    counts = compete(rankings, share * heads.size(), safeguard, granule);
  } else {
    std::vector<size_t> caps, layer_caps(layers, 0);
    for (size_t h = 0; h < heads.size(); ++h) {
      caps.push_back((rankings[h].size() + granule - 1) / granule);
      layer_caps[h / per_layer] += caps[h];
    }
    const std::vector<size_t> totals = deal(share * heads.size(), selection.demands, layer_caps);
    const std::vector<double> equal(per_layer, 1);
    for (size_t layer = 0; layer < layers; ++layer) {
      const size_t first = layer * per_layer;
      std::vector<size_t> dealt;
      if (selection.split == KvBudget::Split::kLayer)
        dealt = compete(std::span(rankings).subspan(first, per_layer), totals[layer],
                        std::min(safeguard, totals[layer] / per_layer), granule);
      else
        dealt = deal(totals[layer], equal, std::span(caps).subspan(first, per_layer));
      counts.insert(counts.end(), dealt.begin(), dealt.end());
    }
  }
  std::vector<std::vector<uint32_t>> kept;
  for (size_t h = 0; h < heads.size(); ++h)
    kept.push_back(rankings[h].best(std::min(rankings[h].size(), counts[h] * granule)));
  return kept;
}

void keep_up_to_page(const ScoredHead& head, size_t page, std::vector<uint32_t>& kept) {
  const size_t more = (head.scores.size() - kept.size()) % page;
  ScoredHead rest = head;
  for (float& score : rest.scores) score = std::max(score, std::numeric_limits<float>::lowest());
  for (uint32_t slot : kept) rest.scores[slot] = -std::numeric_limits<float>::infinity();
  const std::vector<uint32_t> best = Ranking(rest).best(more);
  kept.insert(kept.end(), best.begin(), best.end());
  std::sort(kept.begin(), kept.end());
}

}  // namespace godwit
