#include "plan/cluster.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace godwit::plan {
namespace {

bool same(const Weights& a, const Weights& b) {
  return a.elements == b.elements && a.bytes == b.bytes;
}

bool same(const LayerWeights& a, const LayerWeights& b) {
  return same(a.query_output, b.query_output) && same(a.key_value, b.key_value) && same(a.ffn, b.ffn) &&
         same(a.experts, b.experts) && same(a.repeated, b.repeated);
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

OpTime timed(const OpCost& op, const Device& device) {
  return {std::string(op.name), op.flops, op.bytes, op_seconds(op, device)};
}

void add_timed(std::vector<OpTime>& to, const std::vector<OpCost>& ops, const Device& device) {
  for (const OpCost& op : ops) to.push_back(timed(op, device));
}

RingLayer empty_layer(const Cluster& cluster) {
  RingLayer layer;
  const size_t n = layer.ranks = cluster.ranks();
  for (auto* list : {&layer.before_s, &layer.after_s, &layer.merge_step_s, &layer.merge_all_s, &layer.kv_bytes,
                     &layer.q_bytes, &layer.partial_bytes})
    list->assign(n, 0.0);
  layer.attention_s.assign(n * n, 0.0);
  layer.slowness.assign(n, 1.0);
  layer.slowness[0] = cluster.request().slowest;
  layer.step_s = cluster.request().device.ring_step_s;
  layer.overlapped = cluster.request().overlapped;
  return layer;
}

// What a rank with so many rows computes around attention, and what it sends of them.
void fill_rows(RingLayer& layer, const Cluster& cluster, size_t kind, size_t rank, double rows, double fixed_s) {
  const LayerOps& ops = cluster.ops(kind);
  const Device& device = cluster.request().device;
  const double reduce_s = ops.all_reduces() * cluster.all_reduce_s(ops.all_reduce_bytes(rows));
  layer.before_s[rank] = ops_seconds(ops.before_attention(rows), device) + fixed_s;
  layer.after_s[rank] = ops_seconds(ops.after_attention(rows), device) + reduce_s;
  layer.merge_step_s[rank] = op_seconds(ops.merge(rows, 2), device);
  layer.merge_all_s[rank] = op_seconds(ops.merge(rows, static_cast<double>(layer.ranks)), device);
  layer.q_bytes[rank] = ops.q_message_bytes(rows);
  layer.partial_bytes[rank] = ops.partial_message_bytes(rows);
}

// How many partial outputs a rank returns of each query, on average, where each segment has its own.
double partials_per_rank(const Cluster& cluster, double context) {
  const double segment = cluster.request().device.segment_tokens;
  return segment > 0 ? std::max(1.0, std::ceil(context / segment) / static_cast<double>(cluster.ranks())) : 1;
}

size_t largest(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace

int64_t chunk_of(const PlanRequest& r) {
  const double chunk = r.chunk_tokens > 0 ? static_cast<double>(r.chunk_tokens) : r.device.chunk_tokens;
  if (chunk <= 0) return r.new_tokens;
  return static_cast<int64_t>(std::min(std::max(1.0, chunk) * r.cp, static_cast<double>(r.new_tokens)));
}

Cluster::Cluster(const PlanRequest& request, double kv_slot_bytes) : request_(&request) {
  const PlanModel& model = request.model;
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    size_t kind = 0;
    for (; kind < first_of_kind_.size(); ++kind) {
      const size_t like = first_of_kind_[kind];
      if (same(model.layers[layer], model.layers[like]) &&
          model.config.layers[layer].window == model.config.layers[like].window &&
          model.config.layers[layer].experts == model.config.layers[like].experts)
        break;
    }
    if (kind == first_of_kind_.size()) {
      first_of_kind_.push_back(layer);
      kind_layers_.push_back(0);
      ops_.emplace_back(model, layer, request.tp, kv_slot_bytes, request.device);
    }
    kind_of_.push_back(kind);
    ++kind_layers_[kind];
  }
}

int64_t Cluster::window(size_t kind) const {
  return request_->model.config.layers[first_of_kind_[kind]].window;
}

std::vector<double> Cluster::cached_by_rank() const {
  std::vector<double> cached(ranks());
  for (size_t k = 0; k < ranks(); ++k)
    cached[k] = static_cast<double>(request_->cached_tokens) *
                (request_->cached_shares.empty() ? 1.0 / static_cast<double>(ranks()) : request_->cached_shares[k]);
  return cached;
}

std::vector<double> Cluster::context_by_rank() const {
  std::vector<double> context = cached_by_rank();
  const int64_t step = chunk_of(*request_);
  for (int64_t done = 0; done < request_->new_tokens; done += step) {
    const auto shards = zigzag(0, std::min(step, request_->new_tokens - done), request_->cp, request_->page_tokens);
    for (size_t k = 0; k < ranks(); ++k) context[k] += static_cast<double>(tokens_of(shards[k]));
  }
  return context;
}

double Cluster::all_reduce_s(double bytes) const {
  const Device& device = request_->device;
  const double tp = request_->tp;
  if (tp <= 1 || bytes <= 0) return 0;
  const double moved = 2 * (tp - 1) / tp * bytes;  // in and out of each device
  if (tp <= device.node_devices) return device.all_reduce_s + moved / device.all_reduce_bytes_per_s;
  // A ring through all nodes, cut into as many parallel ones as a node has devices: each has a link of its own.
  const double nodes = std::ceil(tp / device.node_devices);
  return device.all_reduce_s + (nodes - 1) * request_->link.all_reduce_hop_s +
         moved / device.node_devices / request_->link.send_bytes_per_s;
}

PrefillStep::PrefillStep(const Cluster& cluster, int64_t done, int64_t tokens, const std::vector<double>& cached)
    : cluster_(&cluster), cached_(cached), cached_tokens_(sum(cached)) {
  const PlanRequest& r = cluster.request();
  shards_ = zigzag(r.cached_tokens + done, tokens, r.cp, r.page_tokens);
  const size_t n = cluster.ranks();
  const double fixed_s = r.device.prefill_layer_s + (cached_tokens_ > 0 ? r.device.cached_layer_s : 0);
  for (size_t k = 0; k < n; ++k)
    if (rows(k) > rows(busiest_)) busiest_ = k;
  for (size_t kind = 0; kind < cluster.kinds(); ++kind) {
    RingLayer layer = empty_layer(cluster);
    for (size_t k = 0; k < n; ++k) {
      fill_rows(layer, cluster, kind, k, rows(k), fixed_s);
      layer.partial_bytes[k] *= partials_per_rank(cluster, cached_tokens_ + static_cast<double>(tokens));
      layer.kv_bytes[k] = cluster.ops(kind).kv_message_bytes(cached_[k] + rows(k));
      if (r.device.segment_tokens > 0 && n > 1)
        layer.new_kv_bytes.push_back(cluster.ops(kind).kv_message_bytes(rows(k)) * static_cast<double>(n - 1) /
                                     static_cast<double>(n));
    }
    layers_.push_back(std::move(layer));
    for (size_t q = 0; q < n; ++q)
      for (size_t k = 0; k < n; ++k) layers_[kind].attention_s[q * n + k] = op_seconds(attention(kind, q, k), r.device);
  }
}

OpCost PrefillStep::attention(size_t kind, size_t query_rank, size_t kv_rank) const {
  const int64_t window = cluster_->window(kind);
  const auto& queries = shards_[query_rank];
  double pairs = visible_pairs(queries, shards_[kv_rank], window);
  double kv_tokens = static_cast<double>(tokens_of(shards_[kv_rank]));
  if (cached_tokens_ > 0) {
    // Cached tokens come before all new ones; those a window still shows lie over the ranks as all of them do.
    const double share = cached_[kv_rank] / cached_tokens_;
    const auto before = static_cast<int64_t>(std::llround(cached_tokens_));
    pairs += share * visible_pairs(queries, {{0, before}}, window);
    kv_tokens += window > 0 ? std::min(cached_[kv_rank], share * static_cast<double>(window)) : cached_[kv_rank];
  }
  return cluster_->ops(kind).attention(pairs, kv_tokens);
}

dist::RingMode PrefillStep::quickest_mode() const {
  const PlanRequest& r = cluster_->request();
  const auto n = static_cast<double>(cluster_->ranks());
  dist::RingMode best = dist::RingMode::kPassKv;
  double best_s = 0;
  for (dist::RingMode mode : {dist::RingMode::kPassKv, dist::RingMode::kPassQ, dist::RingMode::kAllGather}) {
    double seconds = 0;
    for (size_t kind = 0; kind < layers_.size(); ++kind) {
      const RingLayer& layer = layers_[kind];
      dist::RingWork work;
      work.ranks = r.cp;
      for (size_t k = 0; k < layer.ranks; ++k) {
        double all = 0;
        for (size_t from = 0; from < layer.ranks; ++from) all += layer.attention(k, from);
        work.attention_step_s = std::max(work.attention_step_s, all / n);
      }
      work.kv_bytes = layer.kv_bytes[largest(layer.kv_bytes)];
      work.q_bytes = layer.q_bytes[largest(layer.q_bytes)];
      work.partial_bytes = layer.partial_bytes[largest(layer.partial_bytes)];
      const double exchanged = (n - 1) * (mode == dist::RingMode::kPassQ ? work.partial_bytes : work.kv_bytes);
      const dist::RingConstants constants{r.link.send(), r.link.exchange(exchanged), layer.step_s, layer.overlapped};
      seconds += cluster_->layers(kind) * dist::ring_mode_seconds(mode, work, constants);
    }
    if (mode == dist::RingMode::kPassKv || seconds < best_s) best = mode, best_s = seconds;
  }
  return best;
}

size_t PrefillStep::last_token_rank() const {
  size_t owner = 0;
  int64_t last = -1;
  for (size_t k = 0; k < shards_.size(); ++k)
    for (const TokenRange& range : shards_[k])
      if (range.end > last) last = range.end, owner = k;
  return owner;
}

double PrefillStep::all_reduce_s() const {
  double seconds = 0;
  for (size_t kind = 0; kind < cluster_->kinds(); ++kind) {
    const LayerOps& ops = cluster_->ops(kind);
    seconds += cluster_->layers(kind) * ops.all_reduces() * cluster_->all_reduce_s(ops.all_reduce_bytes(most_rows()));
  }
  return seconds;
}

double PrefillStep::longest_message(dist::RingMode mode) const {
  if (cluster_->ranks() == 1) return 0;
  const RingLayer& layer = layers_.front();
  if (mode == dist::RingMode::kPassQ) return layer.q_bytes[largest(layer.q_bytes)];
  // Gathered K and V of all others take the place of two buffers.
  if (mode == dist::RingMode::kAllGather) return sum(layer.kv_bytes) / 2;
  return layer.kv_bytes[largest(layer.kv_bytes)];
}

std::vector<OpTime> PrefillStep::ops(size_t kind, dist::RingMode mode) const {
  const Device& device = cluster_->request().device;
  const LayerOps& counts = cluster_->ops(kind);
  std::vector<OpTime> ops;
  add_timed(ops, counts.before_attention(most_rows()), device);
  OpTime attention{"attention", 0, 0, 0};
  for (size_t k = 0; k < cluster_->ranks(); ++k) {
    const OpTime part = timed(this->attention(kind, busiest_, k), device);
    attention.flops += part.flops, attention.bytes += part.bytes, attention.seconds += part.seconds;
  }
  ops.push_back(attention);
  const auto n = static_cast<double>(cluster_->ranks());
  if (n > 1 && mode == dist::RingMode::kPassKv) {
    OpTime merge = timed(counts.merge(most_rows(), 2), device);
    ops.push_back({merge.name, 0, (n - 1) * merge.bytes, (n - 1) * merge.seconds});
  } else if (n > 1 && mode == dist::RingMode::kPassQ) {
    ops.push_back(timed(counts.merge(most_rows(), n), device));
  }
  add_timed(ops, counts.after_attention(most_rows()), device);
  const double fixed = device.prefill_layer_s + (cached_tokens_ > 0 ? device.cached_layer_s : 0);
  ops.push_back({"launches", 0, 0, fixed + (mode == dist::RingMode::kAllGather ? 0 : (n - 1) * device.ring_step_s)});
  ops.push_back({"all-reduce", 0, counts.all_reduce_bytes(most_rows()) * counts.all_reduces(),
                 counts.all_reduces() * cluster_->all_reduce_s(counts.all_reduce_bytes(most_rows()))});
  return ops;
}

DecodeStep::DecodeStep(const Cluster& cluster, size_t token, const std::vector<double>& context)
    : cluster_(&cluster), rows_(cluster.ranks(), 0.0), context_(context) {
  const PlanRequest& r = cluster.request();
  const size_t n = cluster.ranks();
  for (size_t b = 0; b < static_cast<size_t>(r.batch); ++b) ++rows_[(b + token) % n];
  busiest_ = largest(rows_);
  for (size_t kind = 0; kind < cluster.kinds(); ++kind) {
    RingLayer layer = empty_layer(cluster);
    for (size_t k = 0; k < n; ++k) {
      fill_rows(layer, cluster, kind, k, rows_[k], rows_[k] > 0 ? r.device.decode_layer_s : 0);
      layer.partial_bytes[k] *= partials_per_rank(cluster, sum(context_));
      layer.attention_s[k] = op_seconds(attention(kind, k), r.device);
    }
    layers_.push_back(std::move(layer));
  }
}

OpCost DecodeStep::attention(size_t kind, size_t rank) const {
  const double all = sum(context_), window = static_cast<double>(cluster_->window(kind));
  const double seen = window > 0 && all > window ? window / all : 1;
  const double tokens = context_[rank] * seen * cluster_->request().batch;
  return cluster_->ops(kind).attention(tokens, tokens);
}

double DecodeStep::all_reduce_s() const {
  double seconds = 0;
  for (size_t kind = 0; kind < cluster_->kinds(); ++kind) {
    const LayerOps& ops = cluster_->ops(kind);
    seconds += cluster_->layers(kind) * ops.all_reduces() * cluster_->all_reduce_s(ops.all_reduce_bytes(most_rows()));
  }
  return seconds;
}

std::vector<OpTime> DecodeStep::ops(size_t kind) const {
  const Device& device = cluster_->request().device;
  const LayerOps& counts = cluster_->ops(kind);
  const double rows = most_rows();
  std::vector<OpTime> ops;
  add_timed(ops, counts.before_attention(rows), device);
  ops.push_back(timed(attention(kind, largest(context_)), device));
  if (cluster_->ranks() > 1) ops.push_back(timed(counts.merge(rows, static_cast<double>(cluster_->ranks())), device));
  add_timed(ops, counts.after_attention(rows), device);
  ops.push_back({"launches", 0, 0, device.decode_layer_s});
  ops.push_back({"all-reduce", 0, counts.all_reduce_bytes(rows) * counts.all_reduces(),
                 counts.all_reduces() * cluster_->all_reduce_s(counts.all_reduce_bytes(rows))});
  return ops;
}

}  // namespace godwit::plan
