// What KV policies left of the beginnings of prompts, for sequences that begin with the same tokens under the same
// rules.
//
// Where a policy drops entries, or adds up what queries attend to, while a prompt is still read, its beginning cannot
// be put together from blocks (see prefix_index.h). But prompts under such rules are read in steps that end at the same
// multiples of tokens (KvRetentionRules::by_pieces), so that what is there after a step depends on the tokens so far
// and on nothing else. A *state* is a fork of the sequence and of its retention at such an end; who goes on with a fork
// of it has what computing those tokens would have come to, bit by bit. Under one *space* states are interchangeable:
// it stands for whoever may see them and for the rules (KvRetentionRules::key).
//
// States share pages with whoever has them. What goes when memory is wanted: the least worth by GreedyDual (see
// prefix_index.h), a state being worth what computing its tokens would cost. What retentions hold beside pages counts
// as the pool's (KvPool::take_beside), and has a bound of its own, too.
//
// Thread-safety: as the pool.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "kv/retention.h"

namespace godwit {

class PrefixStates {
 public:
  struct Options {
    double attention_tokens = 4096;  // as of a PrefixIndex
    size_t piece_tokens = 512;       // states end at multiples of it
    size_t most_bytes_beside = 0;    // of all states' retentions
  };
  struct State {
    std::string space;
    std::shared_ptr<const std::vector<int32_t>> prompt;
    size_t tokens = 0;  // of the prompt
    std::unique_ptr<KvSequence> sequence;
    std::unique_ptr<KvRetention> retention;
    size_t bytes_beside = 0;
    double worth = 0;
  };

  PrefixStates(KvPool& pool, Options options) : pool_(pool), options_(options) {}
  ~PrefixStates() { forget_all(); }
  PrefixStates(const PrefixStates&) = delete;
  PrefixStates& operator=(const PrefixStates&) = delete;

  // The longest state that the tokens begin with; null: none.
  const State* find(std::string_view space, std::span<const int32_t> tokens) const;
  void use(const State& state);  // it is worth its cost again
  // Remembers a sequence that has the first `tokens` of a prompt, a multiple of piece_tokens, after the step's end;
  // unless it has too much beside its pages, or the pool has no room for that.
  void remember(std::string_view space, const std::shared_ptr<const std::vector<int32_t>>& prompt, size_t tokens,
                const KvSequence& sequence, const KvRetention& retention);

  // Drops states until so many pages became free, or as much memory, or none is left whose going frees any; says how
  // many became free. A prefix index may have some of their pages, too, and frees them after that.
  size_t release(size_t pages);
  void forget_all();

  size_t size() const { return states_.size(); }
  size_t bytes() const;  // of all states, whoever else uses their pages. O(1) while states are the same
  // Of pages that only states have, or a prefix index, too, and beside them. O(1) while the pool has not changed.
  size_t releasable_bytes() const;

 private:
  using States = std::unordered_map<uint64_t, State>;  // by the hash of space and tokens

  double worth(size_t tokens) const;
  void drop(States::iterator state);
  States::iterator least(bool alone);  // of worth; `alone`: of those that have memory which nobody else uses

  KvPool& pool_;
  Options options_;
  States states_;
  size_t bytes_beside_ = 0;
  double spent_ = 0;  // worth of the last state that went
  mutable std::optional<size_t> bytes_;
  mutable size_t releasable_ = 0;
  mutable uint64_t releasable_at_ = 0;  // KvPool::changes() then
};

}  // namespace godwit
