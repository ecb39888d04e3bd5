#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/ranges.h>

#include "plan/cluster.h"

namespace godwit::plan {
namespace {

constexpr int64_t kMostTokens = 1'000'000'000;
constexpr int kMostRanks = 512;
constexpr double kMostSteps = 3e7;  // of rings, in all: seconds of simulation

Status check(const PlanRequest& r) {
  GODWIT_TRY(check_tensor_degree(r.model, r.tp));
  auto refuse = [](std::string text) { return fail(ErrorCode::kInvalidArgument, std::move(text)); };
  if (r.cp < 1 || r.cp > kMostRanks)
    return refuse(fmt::format("context parallelism of {} makes no sense; give 1 to {} ranks", r.cp, kMostRanks));
  if (r.new_tokens < 1 || r.new_tokens > kMostTokens)
    return refuse(fmt::format("a prompt of {} tokens makes no sense; give 1 to {}", r.new_tokens, kMostTokens));
  if (r.cached_tokens < 0 || r.cached_tokens > kMostTokens)
    return refuse(fmt::format("{} cached tokens make no sense; give 0 to {}", r.cached_tokens, kMostTokens));
  if (r.page_tokens < 1 || r.page_tokens > 65536)
    return refuse(fmt::format("pages of {} tokens make no sense; give 1 to 65536", r.page_tokens));
  if (r.chunk_tokens < 0 || r.chunk_tokens > kMostTokens)
    return refuse(fmt::format("a chunk of {} tokens makes no sense; give 1 to {}, or 0 for the device's own",
                              r.chunk_tokens, kMostTokens));
  if (r.batch < 1 || r.batch > 65536)
    return refuse(fmt::format("a batch of {} makes no sense; give 1 to 65536 sequences", r.batch));
  if (!(r.slowest >= 1 && r.slowest <= 1000))
    return refuse(fmt::format("a slowest rank of {} makes no sense; give a factor from 1 to 1000", r.slowest));
  if (r.tp > 1 && r.device.all_reduce_bytes_per_s <= 0)
    return refuse(
        fmt::format("{} has no all_reduce_gb_per_s in its description, so that tensor parallelism of {} cannot be "
                    "predicted; add it, or plan with --tp 1",
                    r.device.name, r.tp));
  if (!r.cached_shares.empty()) {
    const double sum = std::accumulate(r.cached_shares.begin(), r.cached_shares.end(), 0.0);
    const bool bad = std::any_of(r.cached_shares.begin(), r.cached_shares.end(), [](double s) { return !(s >= 0); });
    if (r.cached_shares.size() != static_cast<size_t>(r.cp) || bad || std::abs(sum - 1) > 1e-6)
      return refuse(fmt::format("the cached shares should be {} numbers from 0 that sum to 100%", r.cp));
  }
  const double chunk = static_cast<double>(chunk_of(r));
  const double chunks = std::ceil(static_cast<double>(r.new_tokens) / chunk);
  if (chunks * r.cp * r.cp > kMostSteps)
    return refuse(fmt::format("{:.0f} chunks on {} ranks are too many to simulate; raise --chunk", chunks, r.cp));
  return {};
}

// Sums what operators took, by name, in the order in which they came first.
void add_op(std::vector<OpTime>& to, const OpTime& op) {
  if (op.seconds <= 0) return;
  auto found = std::find_if(to.begin(), to.end(), [&](const OpTime& o) { return o.name == op.name; });
  if (found == to.end()) {
    to.push_back(op);
    return;
  }
  found->flops += op.flops, found->bytes += op.bytes, found->seconds += op.seconds;
}

void add_ops(Phase& phase, const std::vector<OpTime>& ops) {
  for (const OpTime& op : ops) add_op(phase.ops, op);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// A walk through layers. Where a layer of the same kind is entered with the same skew as before, it takes as long as
// before, and is not simulated again.
class Walk {
 public:
  Walk(size_t ranks) : ready_(ranks, 0.0), waited_(ranks, 0.0) {}

  template <class Simulate>
  void layer(size_t kind, const Simulate& simulate) {
    const double first = *std::min_element(ready_.begin(), ready_.end());
    std::vector<double> skew(ready_.size());
    for (size_t k = 0; k < skew.size(); ++k) skew[k] = ready_[k] - first;
    Known& known = known_[kind];
    const double close = 1e-9 * (known.run.done_s.empty() ? 1 : known.run.done_s[0]);
    const bool again =
        known.skew.size() == skew.size() && std::equal(skew.begin(), skew.end(), known.skew.begin(),
                                                       [&](double a, double b) { return std::abs(a - b) <= close; });
    if (!again) known = {skew, simulate(skew)};
    for (size_t k = 0; k < ready_.size(); ++k) {
      ready_[k] = first + known.run.done_s[k];
      waited_[k] += known.run.waiting_s[k];
    }
    sent_bytes_ += known.run.sent_bytes;
  }
  void new_step() { known_.clear(); }  // other sizes, other times

  std::vector<double>& ready() { return ready_; }
  const std::vector<double>& waited() const { return waited_; }
  double sent_bytes() const { return sent_bytes_; }

 private:
  struct Known {
    std::vector<double> skew;
    RingRun run;  // with times from the first rank's entry on
  };
  std::map<size_t, Known> known_;
  std::vector<double> ready_, waited_;
  double sent_bytes_ = 0;
};

// Returns the longest message in bytes and the most rows of a rank in `longest` and `most_rows`.
void plan_prefill(const PlanRequest& r, const Cluster& cluster, PlanResult& result, double& longest,
                  double& most_rows) {
  Walk walk(static_cast<size_t>(r.cp));
  const int64_t step_tokens = chunk_of(r);
  std::vector<double> cached = cluster.cached_by_rank();
  size_t owner = 0;
  for (int64_t done = 0; done < r.new_tokens; done += step_tokens) {
    const PrefillStep step(cluster, done, std::min(step_tokens, r.new_tokens - done), cached);
    const dist::RingMode mode = r.mode ? *r.mode : step.quickest_mode();
    ++result.modes[r.cp > 1 ? std::string(ring_mode_name(mode)) : "one rank"];
    walk.new_step();
    for (size_t layer = 0; layer < r.model.layers.size(); ++layer) {
      const size_t kind = cluster.kind_of(layer);
      walk.layer(kind, [&](const std::vector<double>& skew) {
        return simulate_prefill(step.layer(kind), mode, r.link, skew);
      });
      add_ops(result.prefill, step.ops(kind, mode));
    }
    result.prefill.all_reduce_s += step.all_reduce_s();
    longest = std::max(longest, step.longest_message(mode));
    most_rows = std::max(most_rows, step.most_rows());
    for (size_t k = 0; k < cached.size(); ++k) cached[k] += step.rows(k);
    owner = step.last_token_rank();
  }
  const OpCost logits = logits_op(r.model, r.tp, 1);
  add_op(result.prefill.ops, {std::string(logits.name), logits.flops, logits.bytes, op_seconds(logits, r.device)});
  result.prefill.seconds = walk.ready()[owner] + op_seconds(logits, r.device);
  result.prefill.waiting_s = mean(walk.waited());
  result.prefill.sent_bytes = walk.sent_bytes();
}

// The mean over as many tokens as there are ranks: each owns one of them.
void plan_decode(const PlanRequest& r, const Cluster& cluster, const std::vector<double>& context, Phase& phase) {
  const auto ranks = static_cast<size_t>(r.cp);
  Walk walk(ranks);
  double all = 0, waited = 0;
  for (size_t token = 0; token < ranks; ++token) {
    const DecodeStep step(cluster, token, context);
    waited -= walk.waited()[step.busiest()];
    walk.new_step();
    for (size_t layer = 0; layer < r.model.layers.size(); ++layer) {
      const size_t kind = cluster.kind_of(layer);
      walk.layer(kind,
                 [&](const std::vector<double>& skew) { return simulate_decode(step.layer(kind), r.link, skew); });
      if (token == 0) add_ops(phase, step.ops(kind));
    }
    waited += walk.waited()[step.busiest()];
    phase.all_reduce_s += step.all_reduce_s() / static_cast<double>(ranks);
    // The next token is known when the slowest owner has its logits, and must reach the next owner.
    std::vector<double>& ready = walk.ready();
    for (size_t k = 0; k < ranks; ++k) ready[k] += op_seconds(logits_op(r.model, r.tp, step.rows(k)), r.device);
    const double next = *std::max_element(ready.begin(), ready.end()) + (ranks > 1 ? r.link.send().seconds(8) : 0);
    std::fill(ready.begin(), ready.end(), next);
    all = next;
    if (token == 0) {
      const OpCost logits = logits_op(r.model, r.tp, step.most_rows());
      add_op(phase.ops, {std::string(logits.name), logits.flops, logits.bytes, op_seconds(logits, r.device)});
    }
  }
  const auto n = static_cast<double>(ranks);
  phase.seconds = all / n;
  phase.waiting_s = waited / n;
  phase.sent_bytes = walk.sent_bytes() / n;
}

double slot_bytes(const KvFormat& kv) {
  return static_cast<double>(kv.page_bytes()) / kv.page_tokens;
}

// The longest context that fits when it lies evenly and comes in the same steps.
int64_t longest_context(const PlanRequest& r) {
  auto fits = [&](int64_t tokens) {
    const double share = std::ceil(static_cast<double>(tokens) / r.cp);
    const double chunk = r.chunk_tokens > 0 ? static_cast<double>(r.chunk_tokens) : r.device.chunk_tokens;
    const double rows = chunk > 0 ? std::min(chunk, share) : share;
    const LayerOps ops(r.model, 0, r.tp, slot_bytes(r.kv), r.device);
    const double message = r.cp > 1 ? ops.kv_message_bytes(share) : 0;
    return memory_use(r.model, r.tp, slot_bytes(r.kv), r.device, share * r.batch, message, rows).total() <=
           r.device.memory_bytes;
  };
  int64_t low = 0, high = kMostTokens;
  if (!fits(1)) return 0;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

std::string PlanResult::mode() const {
  std::vector<std::string> names;
  for (const auto& [name, steps] : modes) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<PlanResult> make_plan(const PlanRequest& request) {
  GODWIT_TRY(check(request));
  PlanResult result;
  result.tp = request.tp;
  result.cp = request.cp;
  const Cluster cluster(request, slot_bytes(request.kv));
  double longest = 0, most_rows = 0;
  plan_prefill(request, cluster, result, longest, most_rows);
  const std::vector<double> context = cluster.context_by_rank();
  plan_decode(request, cluster, context, result.decode);
  result.memory = memory_use(request.model, request.tp, slot_bytes(request.kv), request.device,
                             *std::max_element(context.begin(), context.end()) * request.batch, longest, most_rows);
  result.fits = result.memory.total() <= request.device.memory_bytes;
  result.longest_context = longest_context(request);
  if (request.cp > 1) {
    PlanRequest alone = request;
    alone.cp = 1;
    alone.cached_shares.clear();
    alone.slowest = 1;
    PlanResult single;
    double unused_bytes = 0, unused_rows = 0;
    plan_prefill(alone, Cluster(alone, slot_bytes(alone.kv)), single, unused_bytes, unused_rows);
    result.efficiency = single.prefill.seconds / (request.cp * result.prefill.seconds);
  }
  return result;
}

const PlanResult* cheapest(const std::vector<PlanResult>& results, std::optional<double> ttft_s,
                           std::optional<double> ttit_s) {
  const PlanResult* best = nullptr;
  for (const PlanResult& r : results) {
    if (!r.fits || (ttft_s && r.prefill.seconds > *ttft_s) || (ttit_s && r.decode.seconds > *ttit_s)) continue;
    const bool better = best == nullptr || r.devices() < best->devices() ||
                        (r.devices() == best->devices() && r.prefill.seconds < best->prefill.seconds);
    if (better) best = &r;
  }
  return best;
}

}  // namespace godwit::plan
