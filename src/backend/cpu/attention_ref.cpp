// The scalar reference of attention: every visible score in fp64, then one softmax. Slow, short, and what the SIMD
// kernels are compared with.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/attention_state.h"
#include "backend/cpu/attention_work.h"
#include "backend/cpu/page_layout.h"
#include "backend/cpu/partials.h"

namespace godwit::cpu {
namespace {

// The numbers of a page. One with a form of its own is read as a whole: a single number may be as much work.
class PageNumbers {
 public:
  PageNumbers(const KvFormat& format, const std::byte* page)
      : keys_(PageHalf::keys(format)),
        values_(PageHalf::values(format)),
        page_(page),
        dims_(static_cast<size_t>(format.head_dim)),
        tokens_(static_cast<size_t>(format.page_tokens)) {
    if (!format.sealed_form) return;
    k_.resize(dims_ * tokens_);
    v_.resize(dims_ * tokens_);
    format.sealed_form->read(page, k_.data(), v_.data());
  }
  float key(size_t slot, size_t dim) const {
    return k_.empty() ? keys_.number(page_, slot, dim) : k_[dim * tokens_ + slot];
  }
  float value(size_t slot, size_t dim) const {
    return v_.empty() ? values_.number(page_, slot, dim) : v_[slot * dims_ + dim];
  }

 private:
  PageHalf keys_, values_;
  const std::byte* page_;
  size_t dims_, tokens_;
  std::vector<float> k_, v_;
};

struct SeenSlot {
  std::shared_ptr<const PageNumbers> page;
  size_t slot;
  double score;
};

std::vector<SeenSlot> seen_slots(const AttentionArgs& args, const AttentionTile& tile, const float* q,
                                 int32_t position) {
  const auto head_dim = static_cast<size_t>(args.format.head_dim);
  const PositionSpan sees(position, args.window);
  std::vector<SeenSlot> seen;
  for (uint32_t i = tile.page_begin; i < tile.page_end; ++i) {
    const PageView page(args, args.plan->pages[i]);
    const auto numbers =
        std::make_shared<const PageNumbers>(page.open ? args.format.open_format() : args.format, page.k);
    for (size_t slot = 0; slot < static_cast<size_t>(page.count); ++slot) {
      const int32_t slot_position =
          page.positions != nullptr ? page.positions[slot] : page.min_position + static_cast<int32_t>(slot);
      if (!sees.holds(slot_position)) continue;
      double score = 0;
      for (size_t d = 0; d < head_dim; ++d) score += static_cast<double>(q[d]) * numbers->key(slot, d);
      score *= args.scale;
      if (args.softcap > 0) score = args.softcap * std::tanh(score / args.softcap);
      if (page.bias != nullptr) score += page.bias[slot];
      seen.push_back({numbers, slot, score});
    }
  }
  return seen;
}

// Weights relative to exp(top).
struct Sums {
  explicit Sums(size_t head_dim) : out(head_dim, 0.0) {}

  void rescale(double to) {
    const double factor = sum == 0 ? 1 : std::exp(top - to);
    for (double& number : out) number *= factor;
    sum *= factor;
    top = to;
  }
  void add(const float* state) {
    const double its_top = state[out.size()], its_sum = state[out.size() + 1];
    if (its_sum == 0) return;
    rescale(std::max(top, its_top));
    const double factor = std::exp(its_top - top);
    for (size_t d = 0; d < out.size(); ++d) out[d] += state[d] * factor;
    sum += its_sum * factor;
  }
  void write(const AttnPartial& partial, size_t row, size_t head) const {
    auto* to = reinterpret_cast<float*>(partial.out.data + row * partial.out.row_stride_bytes) + head * out.size();
    auto* lse = reinterpret_cast<float*>(partial.lse.data + row * partial.lse.row_stride_bytes) + head;
    for (size_t d = 0; d < out.size(); ++d) to[d] = sum == 0 ? 0.0f : static_cast<float>(out[d] / sum);
    *lse = sum == 0 ? kMinusInfinity : static_cast<float>(top + std::log(sum));
  }

  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  std::vector<double> out;
};

void attend(const AttentionArgs& args, const AttentionShape& shape, const AttentionTile& tile, int32_t row, int head) {
  const auto head_dim = static_cast<size_t>(shape.head_dim), at = static_cast<size_t>(row);
  const size_t offset = static_cast<size_t>(head) * head_dim;
  const auto* q = reinterpret_cast<const float*>(args.q.data + at * args.q.row_stride_bytes) + offset;
  const auto seen = seen_slots(args, tile, q, reinterpret_cast<const int32_t*>(args.positions.data)[row]);

  Sums sums(head_dim);
  float* state = args.state ? state_at(args.state, at, static_cast<size_t>(head)) : nullptr;
  if (args.resumes) sums.add(state);
  double top = sums.top;
  for (const SeenSlot& slot : seen) top = std::max(top, slot.score);
  if (std::isinf(top)) top = 0;  // nothing seen, or only scores of -inf: no weight either way
  sums.rescale(top);
  double& sum = sums.sum;
  std::vector<double>& total = sums.out;
  for (const SeenSlot& slot : seen) {
    const double weight = std::exp(slot.score - top);
    sum += weight;
    for (size_t d = 0; d < head_dim; ++d) total[d] += weight * slot.page->value(slot.slot, d);
  }
  if (state == nullptr) return sums.write(args.partial, at, static_cast<size_t>(head));
  store_empty(state, head_dim);
  if (sum == 0) return;
  for (size_t d = 0; d < head_dim; ++d) state[d] = static_cast<float>(total[d]);
  state[head_dim] = static_cast<float>(top);
  state[head_dim + 1] = static_cast<float>(sum);
}

void finish(Context&, const FinishAttentionArgs& args) {
  const auto rows = static_cast<size_t>(args.partial.out.shape[0]),
             heads = static_cast<size_t>(args.partial.out.shape[1]);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t head = 0; head < heads; ++head) {
      Sums sums(static_cast<size_t>(args.format.head_dim));
      for (const Tensor& state : args.states) sums.add(state_at(state, row, head));
      sums.write(args.partial, row, head);
    }
  }
}

void attention(Context& context, const AttentionArgs& args) {
  const AttentionShape shape(args);
  clear_uncovered(context, args, shape);
  for (const AttentionTile& tile : args.plan->tiles) {
    for (int32_t row = tile.row_begin; row < tile.row_end; ++row)
      for (int head = tile.kv_head * shape.group; head < (tile.kv_head + 1) * shape.group; ++head)
        attend(args, shape, tile, row, head);
    if (args.poll != nullptr) (*args.poll)();
  }
}

}  // namespace

void fill_attention_ref(Kernels& table) {
  table.attention = table.attention_f32 = &attention;
  table.finish_attention = table.finish_attention_f32 = &finish;
  table.kv_write = &kv_write;
  table.merge_partials = &merge_partials;
}

}  // namespace godwit::cpu
