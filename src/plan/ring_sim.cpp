#include "plan/ring_sim.h"

#include <algorithm>
#include <numeric>

#include "plan/task_graph.h"

namespace godwit::plan {
namespace {

using Task = TaskGraph::Task;

// The parts that all ways share: ranks with their resources, messages, the exchange, and the sums at the end.
class LayerRun {
 public:
  LayerRun(const RingLayer& layer, const Link& link, const std::vector<double>& entry_s)
      : layer_(layer), link_(link), entry_s_(entry_s), last_(layer.ranks, TaskGraph::kNone) {
    for (size_t k = 0; k < layer.ranks; ++k) compute_.push_back(graph_.add_resource(entry_s[k]));
    for (size_t k = 0; k < layer.ranks; ++k) wire_.push_back(graph_.add_resource(entry_s[k]));
  }

  size_t ranks() const { return layer_.ranks; }
  Task last(size_t rank) const { return last_[rank]; }

  // The next thing that `rank` computes, not before `after` ended.
  Task compute(size_t rank, double seconds, Task after = TaskGraph::kNone) {
    return last_[rank] = graph_.add(compute_[rank], seconds * layer_.slowness[rank], {last_[rank], after});
  }
  // From `rank` to the next; nothing to send is there at once.
  Task send(size_t rank, double bytes, const std::vector<Task>& after) {
    if (bytes <= 0) return graph_.add(-1, 0, after);
    sent_bytes_ += bytes;
    return graph_.add(wire_[rank], link_.send().seconds(bytes), after);
  }
  // What a rank's processors take for bytes that it sends or receives.
  double handling_s(double bytes) const {
    return link_.handled_bytes_per_s > 0 ? bytes / link_.handled_bytes_per_s : 0;
  }
  // All with all, when all are ready: `sent[k]` from rank k, `received[k]` to it. A rank's next computation waits for
  // it.
  std::vector<Task> exchange(const std::vector<double>& sent, const std::vector<double>& received) {
    const Task all_ready = graph_.add(-1, 0, last_);
    std::vector<Task> ends(ranks(), all_ready);
    for (size_t k = 0; k < ranks(); ++k) {
      const double bytes = std::max(sent[k], received[k]);
      if (bytes <= 0) continue;
      sent_bytes_ += sent[k];
      ends[k] = graph_.add(wire_[k], link_.exchange(bytes).seconds(bytes), {all_ready});
    }
    return ends;
  }

  RingRun finish() {
    graph_.run();
    RingRun run;
    run.sent_bytes = sent_bytes_;
    for (size_t k = 0; k < ranks(); ++k) {
      run.done_s.push_back(last_[k] == TaskGraph::kNone ? entry_s_[k] : graph_.end(last_[k]));
      run.waiting_s.push_back(run.done_s[k] - entry_s_[k] - graph_.busy(compute_[k]));
    }
    return run;
  }

 private:
  const RingLayer& layer_;
  const Link& link_;
  const std::vector<double>& entry_s_;
  TaskGraph graph_;
  std::vector<int> compute_, wire_;
  std::vector<Task> last_;
  double sent_bytes_ = 0;
};

// What goes around is `bytes[r]` of rank r; step j of rank k works on what came from rank k - j, and costs
// seconds(k, k - j). Two buffers: a message may come while the one before it is worked on, not earlier; both ends
// launch it after the step before.
template <class Seconds>
void ring(LayerRun& run, const RingLayer& layer, const std::vector<double>& bytes, const Seconds& seconds) {
  const size_t n = run.ranks();
  std::vector<Task> arrived(n, TaskGraph::kNone);  // for this step
  for (size_t j = 0; j < n; ++j) {
    std::vector<Task> coming(n, TaskGraph::kNone);
    std::vector<Task> launched(n, TaskGraph::kNone);
    if (j + 1 < n)
      for (size_t k = 0; k < n; ++k) launched[k] = run.compute(k, layer.step_s, arrived[k]);
    std::vector<Task> work(n);
    for (size_t k = 0; k < n; ++k) {
      const size_t from = (k + n - j) % n;
      const double handled = run.handling_s(bytes[from] * ((j > 0 ? 1 : 0) + (j + 1 < n ? 1 : 0)));
      work[k] = run.compute(k, seconds(k, from, j) + handled, arrived[k]);
    }
    for (size_t k = 0; j + 1 < n && k < n; ++k) {
      const size_t to = (k + 1) % n;
      std::vector<Task> after = {launched[k], launched[to]};
      if (!layer.overlapped) after.insert(after.end(), {work[k], work[to]});
      coming[to] = run.send(k, bytes[(k + n - j) % n], after);
    }
    arrived = std::move(coming);
  }
}

double sum_but(const std::vector<double>& values, size_t one) {
  return std::accumulate(values.begin(), values.end(), 0.0) - values[one];
}

// Every rank has a partial output for every other rank's rows and sends it home.
std::vector<Task> return_partials(LayerRun& run, const std::vector<double>& partial_bytes) {
  const size_t n = run.ranks();
  std::vector<double> sent(n), received(n);
  for (size_t k = 0; k < n; ++k) {
    sent[k] = sum_but(partial_bytes, k);
    received[k] = static_cast<double>(n - 1) * partial_bytes[k];
  }
  return run.exchange(sent, received);
}

}  // namespace

RingRun simulate_prefill(const RingLayer& layer, dist::RingMode mode, const Link& link,
                         const std::vector<double>& entry_s) {
  LayerRun run(layer, link, entry_s);
  const size_t n = layer.ranks;
  for (size_t k = 0; k < n; ++k) run.compute(k, layer.before_s[k]);
  std::vector<Task> home(n, TaskGraph::kNone);
  if (n > 1 && !layer.new_kv_bytes.empty()) {
    const double each =
        std::accumulate(layer.new_kv_bytes.begin(), layer.new_kv_bytes.end(), 0.0) / static_cast<double>(n);
    const std::vector<Task> kept = run.exchange(layer.new_kv_bytes, std::vector<double>(n, each));
    for (size_t k = 0; k < n; ++k) run.compute(k, run.handling_s(layer.new_kv_bytes[k] + each), kept[k]);
  }
  if (n == 1) {
    run.compute(0, layer.attention(0, 0));
  } else if (mode == dist::RingMode::kPassKv) {
    ring(run, layer, layer.kv_bytes, [&](size_t k, size_t from, size_t step) {
      return layer.attention(k, from) + (step > 0 ? layer.merge_step_s[k] : 0);
    });
  } else if (mode == dist::RingMode::kPassQ) {
    ring(run, layer, layer.q_bytes, [&](size_t k, size_t from, size_t) { return layer.attention(from, k); });
    home = return_partials(run, layer.partial_bytes);
    for (size_t k = 0; k < n; ++k)
      run.compute(k,
                  layer.merge_all_s[k] + run.handling_s(sum_but(layer.partial_bytes, k) +
                                                        static_cast<double>(n - 1) * layer.partial_bytes[k]),
                  home[k]);
  } else {
    std::vector<double> sent(n), received(n);
    for (size_t k = 0; k < n; ++k) {
      sent[k] = static_cast<double>(n - 1) * layer.kv_bytes[k];
      received[k] = sum_but(layer.kv_bytes, k);
    }
    home = run.exchange(sent, received);
    for (size_t k = 0; k < n; ++k) {
      double all = 0;
      for (size_t from = 0; from < n; ++from) all += layer.attention(k, from);
      run.compute(k, all + run.handling_s(layer.kv_bytes[k] + received[k]), home[k]);
    }
  }
  for (size_t k = 0; k < n; ++k) run.compute(k, layer.after_s[k]);
  return run.finish();
}

RingRun simulate_decode(const RingLayer& layer, const Link& link, const std::vector<double>& entry_s) {
  LayerRun run(layer, link, entry_s);
  const size_t n = layer.ranks;
  for (size_t k = 0; k < n; ++k) run.compute(k, layer.before_s[k]);
  // Queries hop around the ring; a rank begins when it has all of them.
  std::vector<Task> here(n);
  for (size_t k = 0; k < n; ++k) here[k] = run.last(k);
  std::vector<std::vector<Task>> needs(n);
  for (size_t hop = 1; hop < n; ++hop) {
    std::vector<Task> next(n);
    for (size_t k = 0; k < n; ++k) {
      const size_t to = (k + 1) % n;
      next[to] = run.send(k, layer.q_bytes[(k + n - (hop - 1)) % n], {here[k]});
      needs[to].push_back(next[to]);
    }
    here = std::move(next);
  }
  for (size_t k = 0; k < n; ++k) {
    Task all = TaskGraph::kNone;
    for (Task came : needs[k]) all = run.compute(k, 0, came);
    run.compute(k, layer.attention(0, k), all);
  }
  if (n > 1) {
    const std::vector<Task> home = return_partials(run, layer.partial_bytes);
    for (size_t k = 0; k < n; ++k) run.compute(k, layer.merge_all_s[k], home[k]);
  }
  for (size_t k = 0; k < n; ++k) run.compute(k, layer.after_s[k]);
  return run.finish();
}

}  // namespace godwit::plan
