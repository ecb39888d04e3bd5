#include "kv/prefix_index.h"

#include <algorithm>

namespace godwit {
namespace {

uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = 0xcbf29ce484222325;
  for (int32_t token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3;
  return hash ^ (hash >> 29);
}

}  // namespace

PrefixIndex::PrefixIndex(KvPool& pool, KvShape shape, Options options)
    : pool_(pool), shape_(shape), options_(options), block_tokens_(static_cast<size_t>(pool.format().page_tokens)) {
  pool_.add_holder(this);
}

PrefixIndex::~PrefixIndex() {
  pool_.remove_holder(this);
  for (const auto& [space, root] : roots_)
    visit(*root, [&](const Node& node) {
      for (const auto* pages : {&node.pages, &node.open})
        for (PageId page : *pages) pool_.give_up(page);
    });
}

template <class Visit>
void PrefixIndex::visit(const Node& node, const Visit& each) const {
  std::vector<const Node*> open = {&node};  // a chain may be as deep as a context is long
  while (!open.empty()) {
    const Node* next = open.back();
    open.pop_back();
    each(*next);
    for (const auto& [hash, child] : next->children) open.push_back(child.get());
  }
}

void PrefixIndex::count_references(PageCounts& counts) const {
  for (const auto& [space, root] : roots_)
    visit(*root, [&](const Node& node) {
      for (const auto* pages : {&node.pages, &node.open})
        for (PageId page : *pages) counts.add(page);
    });
}

std::span<const int32_t> PrefixIndex::block(std::span<const int32_t> tokens, size_t begin) const {
  return begin + block_tokens_ <= tokens.size() ? tokens.subspan(begin, block_tokens_) : std::span<const int32_t>();
}

PrefixIndex::Node* PrefixIndex::child(const Node& node, std::span<const int32_t> block) const {
  if (block.empty()) return nullptr;
  const auto [begin, end] = node.children.equal_range(hash_of(block));
  for (auto it = begin; it != end; ++it)
    if (std::equal(block.begin(), block.end(), it->second->tokens.begin())) return it->second.get();
  return nullptr;
}

bool PrefixIndex::sealed(size_t block, size_t blocks) const {
  const KvFormat& format = pool_.format();
  return !format.seals || (block >= format.sealed_begin() && block < format.sealed_end(blocks * block_tokens_));
}

std::vector<PrefixIndex::Node*> PrefixIndex::path(std::string_view space, std::span<const int32_t> tokens) const {
  std::vector<Node*> nodes;
  const auto root = roots_.find(std::string(space));
  if (root == roots_.end()) return nodes;
  for (Node* node = root->second.get(); (node = child(*node, block(tokens, nodes.size() * block_tokens_))) != nullptr;)
    nodes.push_back(node);
  const auto there = [&](size_t i) { return !(sealed(i, nodes.size()) ? nodes[i]->pages : nodes[i]->open).empty(); };
  for (size_t i = nodes.size(); i > 0;)
    if (!there(--i)) {
      // A shorter prefix may want it open, but none that holds it wants it sealed.
      nodes.resize(sealed(i, nodes.size()) ? nodes.size() - 1 : i);
      i = nodes.size();
    }
  return nodes;
}

size_t PrefixIndex::matched(std::string_view space, std::span<const int32_t> tokens) const {
  return path(space, tokens).size() * block_tokens_;
}

// A use makes a block worth what it costs, counted from now.
void PrefixIndex::use(Node& node) {
  const bool leaf = node.children.empty();
  if (leaf) leaves_.erase(&node);
  const auto tokens = static_cast<double>(block_tokens_), before = static_cast<double>(node.depth);
  node.worth = spent_ + tokens * (1 + (before + tokens / 2) / options_.attention_tokens);
  if (leaf) leaves_.insert(&node);
}

size_t PrefixIndex::share(std::string_view space, std::span<const int32_t> tokens, KvSequence& sequence) {
  GODWIT_CHECK(sequence.next_position() == 0);
  const std::vector<Node*> nodes = path(space, tokens);
  for (size_t i = 0; i < nodes.size(); ++i) {
    sequence.append_shared(sealed(i, nodes.size()) ? nodes[i]->pages : nodes[i]->open);
    use(*nodes[i]);
  }
  return nodes.size() * block_tokens_;
}

PrefixIndex::Node* PrefixIndex::add_child(Node& node, std::span<const int32_t> block) {
  auto made = std::make_unique<Node>();
  Node* added = made.get();
  added->parent = &node;
  added->tokens.assign(block.begin(), block.end());
  added->depth = node.parent == nullptr ? 0 : node.depth + block_tokens_;
  if (node.children.empty()) leaves_.erase(&node);
  node.children.emplace(hash_of(block), std::move(made));
  ++blocks_;
  return added;
}

void PrefixIndex::keep(std::vector<PageId>& pages, const Node& node, const KvSequence& sequence, bool open) {
  std::vector<PageId> column;
  if (!pages.empty() || !sequence.list_column(node.depth / block_tokens_, open, column)) return;
  for (PageId page : column) pool_.keep(page);
  pages = std::move(column);
}

void PrefixIndex::remember(std::string_view space, std::span<const int32_t> tokens, const KvSequence& sequence) {
  GODWIT_CHECK(tokens.size() <= static_cast<size_t>(sequence.next_position()));
  if (tokens.size() < block_tokens_) return;
  auto& root = roots_[std::string(space)];
  if (!root) root = std::make_unique<Node>();
  Node* node = root.get();
  // Open: the first ones, and so many of the last that a sequence can go on after the last block or the one before it,
  // as one does that begins with the very same tokens and has to compute the last of them.
  const KvFormat& format = pool_.format();
  const size_t blocks = tokens.size() / block_tokens_, open_before = static_cast<size_t>(format.open_first);
  const size_t open_after = static_cast<size_t>(format.open_last) + 2 * block_tokens_;
  for (size_t begin = 0; !block(tokens, begin).empty(); begin += block_tokens_) {
    Node* next = child(*node, block(tokens, begin));
    if (next == nullptr) next = add_child(*node, block(tokens, begin));
    keep(next->pages, *next, sequence, false);
    if (format.seals && (begin < open_before || begin + open_after >= blocks * block_tokens_))
      keep(next->open, *next, sequence, true);
    use(*next);
    node = next;
  }
}

size_t PrefixIndex::drop(Node* leaf) {
  const size_t before = pool_.bytes_in_use();
  leaves_.erase(leaf);
  spent_ = std::max(spent_, leaf->worth);
  for (const auto* pages : {&leaf->pages, &leaf->open})
    for (PageId page : *pages) pool_.give_up(page);
  Node* parent = leaf->parent;
  const auto [begin, end] = parent->children.equal_range(hash_of(leaf->tokens));
  parent->children.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == leaf; }));
  --blocks_;
  if (parent->children.empty() && parent->parent != nullptr) leaves_.insert(parent);
  return (before - pool_.bytes_in_use()) / pool_.smallest_page_bytes();
}

size_t PrefixIndex::release(size_t pages) {
  size_t freed = 0;
  // Leaves that sequences use would free nothing, and so would their ancestors: a sequence holds its whole prefix.
  for (auto it = leaves_.begin(); it != leaves_.end() && freed < pages;) {
    Node* leaf = *it;
    const auto used = [&](PageId page) { return pool_.shared(page); };
    if (std::all_of(leaf->pages.begin(), leaf->pages.end(), used) &&
        std::all_of(leaf->open.begin(), leaf->open.end(), used)) {
      ++it;
      continue;
    }
    freed += drop(leaf);
    it = leaves_.begin();  // the parent may be cheaper than what was passed
  }
  return freed;
}

void PrefixIndex::forget_all() {
  while (!leaves_.empty()) drop(*leaves_.begin());
}

}  // namespace godwit
