// Prefixes whose K and V are still in a pool, for sequences that begin with the same tokens.
//
// A tree of blocks of page_tokens tokens: a node is one block, its pages in all heads, and the blocks that followed it.
// Sequences share the pages by reference, so a node that a sequence uses costs nothing, and dropping it frees nothing.
// Under one *space* K and V are interchangeable: it stands for model, codec, whoever may see them, and all else they
// depend on. Nothing is found across spaces.
//
// Where the format seals pages, a block may be there open, sealed or both. A sequence can go on after a block if those
// before it are there in the forms that it would have itself; open ones are kept at the ends of what was remembered.
//
// What goes when memory is wanted: leaves, the cheapest first by GreedyDual (Cao and Irani, USITS 1997). A block is
// worth what computing it again would cost, counted from the worth of the last one that went; every use counts it anew.
// So a block that was costly and one that was just used stay.
//
// A pool has one index. Thread-safety: as its pool.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/sequence.h"

namespace godwit {

class PrefixIndex final : private PageHolder {
 public:
  struct Options {
    // Computing a token costs 1 + (tokens before it) / attention_tokens.
    double attention_tokens = 4096;
  };

  PrefixIndex(KvPool& pool, KvShape shape, Options options);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // How many of the tokens are there, in whole blocks that a sequence can go on after.
  size_t matched(std::string_view space, std::span<const int32_t> tokens) const;
  // Puts what is there of the tokens into an empty sequence and says how many they are. A sequence needs a token to
  // compute: give all but the last.
  size_t share(std::string_view space, std::span<const int32_t> tokens, KvSequence& sequence);
  // Remembers the whole blocks among the first tokens of a sequence, all of which are computed. REQUIRES: no entry of
  // them was dropped.
  void remember(std::string_view space, std::span<const int32_t> tokens, const KvSequence& sequence);

  // Drops leaves until so many pages became free, or no leaf is left that frees any; says how many became free.
  size_t release(size_t pages);
  void clear() { release(SIZE_MAX); }
  void forget_all();  // also blocks that sequences use, which keep their pages

  size_t blocks() const { return blocks_; }
  size_t releasable_bytes() const { return pool_.kept_bytes(); }  // what clear() would free; O(1)

 private:
  struct Node {
    Node* parent = nullptr;
    std::vector<int32_t> tokens;
    std::vector<PageId> pages, open;  // open: where the format seals
    size_t depth = 0;                 // tokens before it
    double worth = 0;
    std::unordered_multimap<uint64_t, std::unique_ptr<Node>> children;  // by the hash of their tokens
  };
  struct ByWorth {
    bool operator()(const Node* a, const Node* b) const { return a->worth != b->worth ? a->worth < b->worth : a < b; }
  };

  void count_references(PageCounts& counts) const override;
  Node* child(const Node& node, std::span<const int32_t> block) const;
  Node* add_child(Node& node, std::span<const int32_t> block);
  // The nodes of the tokens' blocks, as many as matched() says.
  std::vector<Node*> path(std::string_view space, std::span<const int32_t> tokens) const;
  bool sealed(size_t block, size_t blocks) const;  // how a sequence of so many blocks has it
  void keep(std::vector<PageId>& pages, const Node& node, const KvSequence& sequence, bool open);
  void use(Node& node);
  size_t drop(Node* leaf);  // the pages that became free
  std::span<const int32_t> block(std::span<const int32_t> tokens, size_t begin) const;
  template <class Visit>
  void visit(const Node& node, const Visit& each) const;

  KvPool& pool_;
  KvShape shape_;
  Options options_;
  size_t block_tokens_, blocks_ = 0;
  double spent_ = 0;  // worth of the last block that went
  std::unordered_map<std::string, std::unique_ptr<Node>> roots_;
  std::set<Node*, ByWorth> leaves_;
};

}  // namespace godwit
