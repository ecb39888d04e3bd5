#include "kv/retention.h"

#include <algorithm>
#include <cmath>

#include "kv/merge.h"

namespace godwit {
namespace {

auto no_memory_for(std::string_view what, const KvOutcome& outcome) {
  return errorf(ErrorCode::kExhausted,
                "the KV memory is full: {} entries that other sessions share needs {} pages more; free a session or "
                "raise the KV memory",
                what, outcome.missing_pages);
}

}  // namespace

Result<std::shared_ptr<const KvRetentionRules>> KvRetentionRules::make(const KvRetentionOptions& options,
                                                                       const KvShape& shape, const KvFormat& format,
                                                                       int q_heads) {
  GODWIT_ASSIGN(NamedKvPolicy method, make_kv_policy(options.policy, shape));
  return make(std::move(method), options, shape, format, q_heads);
}

Result<std::shared_ptr<const KvRetentionRules>> KvRetentionRules::make(NamedKvPolicy method,
                                                                       const KvRetentionOptions& options,
                                                                       const KvShape& shape, const KvFormat& format,
                                                                       int q_heads) {
  auto rules = std::make_shared<KvRetentionRules>();
  rules->method = std::move(method);
  const KvPolicyRow& row = *rules->method.row;
  if (options.budget.empty() && row.needs_budget)
    return errorf(ErrorCode::kInvalidArgument,
                  "the KV policy '{}' needs a budget: give tokens (4096), a share (25%) or memory (64MiB)",
                  row.info.name);
  if (!options.budget.empty()) {
    GODWIT_ASSIGN(rules->budget, KvBudget::parse(options.budget));
    GODWIT_TRY(rules->budget.check_pages(options.equal_pages));
  }
  const std::string_view trigger = options.trigger.empty() ? row.trigger : options.trigger;
  GODWIT_ASSIGN(rules->trigger, KvTrigger::parse(trigger, options.prefill_chunk));
  rules->prefill_chunk = options.prefill_chunk;
  rules->q_heads = q_heads;
  rules->format = format;
  rules->written = options;

  const KvBudget& budget = rules->budget;
  if (row.demotes) {
    if (!format.seals)
      return errorf(
          ErrorCode::kInvalidArgument,
          "the KV policy '{}' moves what its budget does not keep to the sealed pages of a KV codec, and this "
          "one has none; give kivi, mustafar, or q4:last=64",
          row.info.name);
    if (budget.unit == KvBudget::Unit::kBytes)
      return errorf(ErrorCode::kInvalidArgument,
                    "the KV policy '{}' drops nothing, so that no number of bytes holds; give the tokens (4096) or the "
                    "share (25%) that keep their numbers",
                    row.info.name);
    rules->format.demotes = true;
  }
  if (budget.split != KvBudget::Split::kHead && !row.comparable_scores)
    return errorf(ErrorCode::kInvalidArgument,
                  "the KV policy '{}' scores each head on a scale of its own, so heads cannot compete; leave "
                  "split=head",
                  row.info.name);
  const auto spared = static_cast<size_t>(row.demotes ? format.open_first + format.open_last : 0);
  const size_t least = std::max({budget.granule(format), rules->method.policy->least_slots(), spared});
  if (budget.unit != KvBudget::Unit::kShare && budget.slots_per_head(INT32_MAX, shape, format) < least)
    return errorf(ErrorCode::kInvalidArgument,
                  "a KV budget of {} is {} tokens in each head, but the KV policy '{}' needs at least {}",
                  options.budget, budget.slots_per_head(INT32_MAX, shape, format), row.info.name, least);
  return rules;
}

size_t KvRetentionRules::slots_per_head(int32_t tokens, const KvShape& shape) const {
  const auto spared = static_cast<size_t>(format.demotes ? format.open_first + format.open_last : 0);
  return std::max(spared, budget.slots_per_head(tokens, shape, format));
}

KvResidence KvRetentionRules::residence(const KvShape& shape) const {
  const auto between = static_cast<uint64_t>(most_between());
  if (between == 0 || (budget.unit == KvBudget::Unit::kShare && budget.share >= 1)) return {};
  // A policy that demotes leaves up to a page more open, because it seals whole ones.
  const uint64_t most =
      between + static_cast<uint64_t>(format.demotes ? format.page_tokens + format.open_first + format.open_last : 0);
  if (budget.unit == KvBudget::Unit::kShare) return {budget.share, most};
  return {0, slots_per_head(INT32_MAX, shape) + most};
}

size_t KvRetentionRules::shareable(size_t prompt_tokens) const {
  const KvNeeds needs = method.policy->needs();
  if (needs.queries == KvNeeds::Queries::kAll) return 0;
  size_t end = prompt_tokens;
  if (trigger.every > 0) {  // a step ends with a look, or begins with one that would else come too late
    const auto every = static_cast<size_t>(trigger.every), chunk = static_cast<size_t>(prefill_chunk);
    end = std::min(end, std::max(every / chunk, size_t{1}) * chunk);
  }
  return end - std::min(end, static_cast<size_t>(needs.last_queries));
}

std::string KvRetentionRules::key() const {
  return fmt::format("{} {} {} {} {} {} {}", fmt::ptr(method.policy.get()), fmt::underlying(budget.unit), budget.share,
                     budget.amount, fmt::underlying(budget.split), trigger.prompt_end, trigger.every);
}

Status check_over_ranks(const NamedKvPolicy& method, const KvFormat& format, int ranks) {
  const char* why = method.row->demotes ? "it demotes entries to pages that different ranks keep"
                    : format.seals      ? "with this KV codec pages are sealed by the number of entries that stay"
                                        : nullptr;
  if (why == nullptr) return {};
  return errorf(ErrorCode::kUnsupported,
                "KV policy '{}' does not work over {} ranks: {}, and no rank has them all; leave it out, or start one "
                "process",
                method.row->info.name, ranks, why);
}

KvRetention::KvRetention(std::shared_ptr<const KvRetentionRules> rules, KvSequence& sequence, KvPeers* peers)
    : rules_(std::move(rules)), needs_(rules_->method.policy->needs()), sequence_(sequence), peers_(peers) {
  const KvShape& shape = sequence.shape();
  if (needs_.queries == KvNeeds::Queries::kLast) window_.emplace(needs_.last_queries, shape.layers, rules_->q_heads);
  if (needs_.queries == KvNeeds::Queries::kAll) totals_.emplace(shape, needs_.use_factor);
}

KvRetention::KvRetention(const KvRetention& other, KvSequence& fork)
    : rules_(other.rules_),
      needs_(other.needs_),
      sequence_(fork),
      peers_(other.peers_),
      window_(other.window_),
      totals_(other.totals_),
      since_(other.since_),
      due_(other.due_),
      settled_(other.settled_) {}

bool KvRetention::looks_before(int rows) const {
  const int most = rules_->most_between();
  return most > 0 && since_ > 0 && since_ + rows > most;
}

bool KvRetention::looks_after(int rows, bool prompt_ends) const {
  const KvTrigger& trigger = rules_->trigger;
  return due_ || (prompt_ends && trigger.prompt_end) || (trigger.every > 0 && since_ + rows >= trigger.every);
}

Status KvRetention::prepare(int rows) {
  if (looks_before(rows)) GODWIT_TRY(apply());
  return window_ ? agreed(window_->prepare(sequence_.pool(), sequence_.next_position(), rows)) : Status();
}

void KvRetention::computes(std::vector<int32_t> positions) {
  GODWIT_CHECK(peers_ != nullptr);
  if (window_) window_->computes(sequence_.pool().backend(), positions);
  computed_ = std::move(positions);
}

void KvRetention::attended(int layer, const AttentionArgs& args) {
  if (window_) window_->attended(sequence_.pool().backend(), layer, args);
  if (!totals_) return;
  if (peers_ == nullptr) totals_->attended(sequence_, layer, args);
  if (peers_ != nullptr) totals_->attended(sequence_, layer, args, computed_, *peers_);
}

Status KvRetention::finish(int rows, bool prompt_ends) {
  if (window_) window_->finish();
  due_ = looks_after(rows, prompt_ends);
  since_ += rows;
  if (totals_) GODWIT_TRY(agreed(totals_->status()));
  return due_ ? apply() : Status();
}

size_t KvRetention::bytes_beside() const {
  return (window_ ? window_->bytes() : 0) + (totals_ ? totals_->bytes() : 0);
}

void KvRetention::skip(int32_t tokens) {
  GODWIT_CHECK(since_ == 0 && settled_ == 0 && !totals_);
  if (window_) window_->skip(tokens);
  since_ = tokens;
}

int32_t KvRetention::shortest_exact() const {
  return totals_ ? sequence_.next_position() : settled_;
}

void KvRetention::forget(int32_t end_position) {
  if (window_) window_->forget(end_position);
  if (totals_) {
    GODWIT_CHECK(end_position == 0, "totals cannot forget some of the queries");
    totals_->clear();
  }
  settled_ = std::min(settled_, end_position);
  since_ = std::min(since_, end_position);
}

bool KvRetention::over_budget(const GatheredSlots& slots) const {
  if (!rules_->method.row->needs_budget) return true;
  size_t count = 0;
  for (size_t head = 0; head < slots.heads(); ++head) count += slots.positions(head).size();
  return count > slots.heads() * rules_->slots_per_head(sequence_.next_position(), sequence_.shape());
}

Status KvRetention::apply() {
  GODWIT_TRY(agreed(look()));
  since_ = 0;
  due_ = false;
  return {};
}

Status KvRetention::look() {
  const KvShape& shape = sequence_.shape();
  GODWIT_ASSIGN(const GatheredSlots slots, GatheredSlots::gather(sequence_, peers_));
  if (!over_budget(slots)) return {};
  std::vector<ScoredHead> heads;
  std::vector<double> demands;
  GODWIT_TRY(score_all(slots, heads, demands));
  const KvBudget& budget = rules_->budget;
  const auto kept = select_slots(heads, shape,
                                 {.slots_per_head = rules_->slots_per_head(sequence_.next_position(), shape),
                                  .granule = budget.granule(rules_->format),
                                  .split = budget.split,
                                  .demands = demands});
  return rules_->format.demotes ? demote(heads, kept) : drop(slots, kept);
}

Result<KvHeadView> KvRetention::view(int layer, int head, const GatheredSlots& slots,
                                     std::span<const KvSlotStats> seen) {
  const auto h = static_cast<size_t>(layer * sequence_.shape().kv_heads + head);
  const size_t first = sequence_.demoted(layer, head);
  const auto open = [&](const auto& list) { return std::span(list).subspan(std::min(first, list.size())); };
  KvHeadView view;
  view.layer = layer, view.head = head;
  view.next_position = sequence_.next_position();
  view.budget = rules_->slots_per_head(sequence_.next_position(), sequence_.shape());
  view.positions = slots.positions(h);
  view.query_positions = query_positions_;
  if (window_ || totals_) {
    const KvSlotStats& stats = seen.empty() ? totals_->of(layer, head) : seen[static_cast<size_t>(head)];
    view.mass = open(stats.mass), view.square = open(stats.square), view.uses = open(stats.uses);
    view.last_use = open(stats.last_use), view.longest_gap = open(stats.longest_gap);
  }
  if (needs_.keys_values) {
    const auto dim = static_cast<size_t>(rules_->format.head_dim);
    GODWIT_TRY(slots.spread(h, dim, read_keys_values(layer, head), {&keys_, 1}));
    GODWIT_TRY(slots.spread(h, dim, {}, {&values_, 1}));
    GODWIT_TRY(slots.spread(h, 1, {}, {&counts_, 1}));
    view.keys = keys_, view.values = values_, view.counts = counts_;
    view.head_dim = dim;
  }
  return view;
}

Result<std::vector<KvSlotStats>> KvRetention::see(int layer, const GatheredSlots& slots) {
  if (window_ && peers_ == nullptr) return window_->look(sequence_, layer, needs_.use_factor, nullptr);
  std::vector<KvSlotStats> seen;
  if (peers_ == nullptr || !observes()) return seen;  // totals are as they are

  const int heads = sequence_.shape().kv_heads;
  Status well;
  if (window_) {
    auto looked = window_->look(sequence_, layer, needs_.use_factor, peers_);
    well = looked.map([](const auto&) {});
    if (looked) seen = std::move(*looked);
  } else {
    for (int head = 0; head < heads; ++head) seen.push_back(totals_->of(layer, head));
  }
  seen.resize(static_cast<size_t>(heads));
  std::vector<std::vector<float>> numbers;
  const KvStatsFields fields{window_.has_value(), !window_ && needs_.use_factor > 0};
  for (const KvSlotStats& stats : seen) numbers.push_back(fields.pack(stats));
  GODWIT_TRY(slots.spread(static_cast<size_t>(layer * heads), fields.width(), well, numbers));
  for (size_t head = 0; head < seen.size(); ++head) seen[head] = fields.unpack(numbers[head]);
  return seen;
}

Status KvRetention::score_all(const GatheredSlots& slots, std::vector<ScoredHead>& heads,
                              std::vector<double>& demands) {
  const KvShape& shape = sequence_.shape();
  const KvPolicy& policy = *rules_->method.policy;
  query_positions_ = window_ ? window_->positions() : std::vector<int32_t>();
  seen_.clear();
  for (int layer = 0; layer < shape.layers; ++layer) {
    GODWIT_ASSIGN(std::vector<KvSlotStats> seen, see(layer, slots));
    demands.push_back(0);
    for (int head = 0; head < shape.kv_heads; ++head) {
      ScoredHead& scored = heads.emplace_back();
      scored.positions = slots.positions(heads.size() - 1);
      scored.scores.resize(scored.positions.size());
      GODWIT_ASSIGN(const KvHeadView known, view(layer, head, slots, seen));
      policy.score(known, scored.scores);
      if (const KvFormat& format = rules_->format; format.demotes)
        protect(known, static_cast<size_t>(format.open_first), static_cast<size_t>(format.open_last), scored.scores);
      demands.back() += policy.demand(known);
    }
    if (policy.merges()) seen_.push_back(std::move(seen));
  }
  return {};
}

Status KvRetention::read_keys_values(int layer, int head) {
  const KvPool& pool = sequence_.pool();
  Backend& backend = pool.backend();
  std::vector<PageRef> pages;
  const size_t first = sequence_.demoted(layer, head) / static_cast<size_t>(pool.format().page_tokens);
  sequence_.list_pages(layer, head, first, sequence_.pages(layer, head), pages);
  std::vector<KvSlot> slots;
  counts_.clear();
  for (const PageRef& page : pages) {
    for (uint32_t i = 0; i < page.count; ++i) {
      slots.push_back({page.page, i});
      counts_.push_back(std::exp(pool.bias(page.page, i)));
    }
  }
  // Piece by piece: what is read here must not take as much again on the device as it takes on the host.
  constexpr size_t kSlotsAtOnce = 256;
  const auto dim = static_cast<size_t>(pool.format().head_dim);
  keys_.resize(slots.size() * dim);
  values_.resize(slots.size() * dim);
  GODWIT_TRY(ensure_bytes(backend, scratch_, 2 * kSlotsAtOnce * dim * sizeof(float)));
  for (size_t begin = 0; begin < slots.size(); begin += kSlotsAtOnce) {
    const size_t count = std::min(kSlotsAtOnce, slots.size() - begin);
    const auto rows = static_cast<int64_t>(count), width = static_cast<int64_t>(dim);
    const Tensor k(scratch_.data(), DType::kF32, {rows, width});
    const Tensor v(scratch_.data() + k.bytes(), DType::kF32, {rows, width});
    backend.kv_read({.format = pool.format(layer),
                     .slab = pool.slab(layer),
                     .slots = std::span(slots).subspan(begin, count),
                     .k = k,
                     .v = v,
                     .open_slab = pool.open_slab()});
    backend.download(std::as_writable_bytes(std::span(keys_).subspan(begin * dim, count * dim)), k.data);
    backend.download(std::as_writable_bytes(std::span(values_).subspan(begin * dim, count * dim)), v.data);
  }
  return {};
}

Status KvRetention::drop(const GatheredSlots& slots, std::span<const std::vector<uint32_t>> kept) {
  const KvShape& shape = sequence_.shape();
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      const auto h = static_cast<size_t>(layer * shape.kv_heads + head);
      if (kept[h].size() < slots.positions(h).size()) GODWIT_TRY(drop_head(layer, head, slots, kept[h]));
    }
  }
  return {};
}

Status KvRetention::drop_head(int layer, int head, const GatheredSlots& slots, std::span<const uint32_t> kept) {
  const KvPolicy& policy = *rules_->method.policy;
  const auto h = static_cast<size_t>(layer * sequence_.shape().kv_heads + head);
  MergedSlots merged;
  if (policy.merges()) {
    const auto seen = seen_.empty() ? std::span<const KvSlotStats>() : seen_[static_cast<size_t>(layer)];
    GODWIT_ASSIGN(const KvHeadView known, view(layer, head, slots, seen));
    std::vector<char> here;
    for (uint32_t slot : kept) here.push_back(slots.is_own(h, slot) ? 1 : 0);
    merged = merged_here(merge_slots(known, kept, policy.merge(known, kept)), here);
  }
  settled_ = sequence_.next_position();
  const std::vector<uint32_t> stay = slots.own(h, kept);
  const KvOutcome retained = sequence_.retain(layer, head, stay);
  Status well = retained ? Status() : no_memory_for("dropping", retained);
  if (retained && totals_) totals_->retain(layer, head, stay);
  if (!policy.merges()) return well;
  // What goes into entries that others keep must be gone here before they count it.
  GODWIT_TRY(agreed(well));
  // A merge that there is no memory for is a drop: less was kept than could have been, and nothing is wrong.
  const Result<KvOutcome> written = write_merged(sequence_, layer, head, merged);
  well = written.map([](const auto&) {});
  if (written && !*written) well = no_memory_for("dropping", *written);
  return agreed(well);
}

Status KvRetention::demote(std::span<const ScoredHead> heads, std::span<const std::vector<uint32_t>> kept) {
  const KvShape& shape = sequence_.shape();
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      const auto h = static_cast<size_t>(layer * shape.kv_heads + head);
      std::vector<uint32_t> stay = kept[h];
      keep_up_to_page(heads[h], static_cast<size_t>(rules_->format.page_tokens), stay);
      if (stay.size() == heads[h].scores.size()) continue;
      for (uint32_t& slot : stay) slot += static_cast<uint32_t>(sequence_.demoted(layer, head));
      settled_ = sequence_.next_position();
      if (KvOutcome outcome = sequence_.demote(layer, head, stay); !outcome) return no_memory_for("demoting", outcome);
      if (totals_) totals_->retain(layer, head, KvSequence::demotion_order(sequence_.slots(layer, head), stay));
    }
  }
  return {};
}

}  // namespace godwit
