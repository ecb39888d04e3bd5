// The last queries of a sequence, kept to ask what they attend to in the cache as it is at any later time: neither
// chunks nor earlier drops shift such a window. Of a sequence that several processes keep together, each holds those of
// the rows that it computed, and they ask together.
//
// A copy shares the kept queries until one of the two takes the next step, and nothing else: both may be in one batch.
// After forget() the window holds what is left of it, until steps fill it again. One thread at a time, as the sequence.
#pragma once

#include "kv/gathered_queries.h"

namespace godwit {

class QueryWindow {
 public:
  QueryWindow(int queries, int layers, int q_heads);
  QueryWindow(const QueryWindow& other);
  QueryWindow& operator=(const QueryWindow&) = delete;

  // A step of `rows` tokens from position `begin`: prepare(), attended() for each layer, finish(). In between,
  // computes() says that the rows here are not all, but those of these positions, ascending.
  Status prepare(const KvPool& pool, int32_t begin, int rows);
  void computes(Backend& backend, std::span<const int32_t> positions);
  void attended(Backend& backend, int layer, const AttentionArgs& args);
  void finish();

  // What the window's queries attend to in a layer, for each head: mass, square and uses of the slots that are here.
  // `peers` have other shares of the sequence; null: it is whole.
  Result<std::vector<KvSlotStats>> look(const KvSequence& sequence, int layer, float use_factor, KvPeers* peers);
  std::vector<int32_t> positions() const;  // of the queries, ascending

  size_t bytes() const { return kept_.bytes; }
  void forget(int32_t end_position);
  void skip(int32_t tokens) { first_ = end_ = tokens; }  // the first step begins there; REQUIRES: none was taken

 private:
  struct LayerAttention {
    float scale = 1, softcap = 0;
    int32_t window = 0;
  };
  struct Run {  // rows of the step's picks that go to neighbouring places
    int64_t pick = 0, place = 0, count = 0;
  };
  Status own_queries(Backend& backend);
  // The window's queries, positions and partials as look() wants them.
  Status fill(Backend& backend, int layer, AttentionArgs& args);
  Status gather(Backend& backend, int layer, KvPeers& peers);
  Tensor layer_queries(int layer) const;  // [queries, q_heads, head_dim]

  int queries_, layers_, q_heads_;
  int head_dim_ = 0;
  std::vector<LayerAttention> attention_;  // [layers], as the last step had it

  Buffer kept_;                  // [layers, queries, q_heads, head_dim]: row p % queries is the query of position p ...
  int32_t first_ = 0, end_ = 0;  // ... for p in [first_, end_), ...
  std::vector<int32_t> held_;    // [queries]: ... if held_[p % queries] is p; else another process computed it
  int32_t written_ = 0;          // rows that were ever written

  int32_t step_begin_ = 0, step_rows_ = 0;
  std::vector<int32_t> step_positions_;  // of the rows of the step that are kept, ascending
  std::vector<Run> step_runs_;           // where they go
  Buffer step_picks_;                    // [queries] i32: which rows they are
  int64_t step_here_ = 0;                // rows of the step that this process computes
  GatheredQueries gathered_;
  Buffer positions_, partial_;  // of look(): [queries] i32; outputs and LSEs
  Buffer scratch_;
};

}  // namespace godwit
