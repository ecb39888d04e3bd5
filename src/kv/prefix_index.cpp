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
      for (PageId page : node.pages) pool_.unref(page);
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

void PrefixIndex::count_references(std::span<uint32_t> references) const {
  for (const auto& [space, root] : roots_)
    visit(*root, [&](const Node& node) {
      for (PageId page : node.pages) ++references[page];
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

size_t PrefixIndex::matched(std::string_view space, std::span<const int32_t> tokens) const {
  const auto root = roots_.find(std::string(space));
  if (root == roots_.end()) return 0;
  size_t count = 0;
  for (const Node* node = root->second.get(); (node = child(*node, block(tokens, count))) != nullptr;)
    count += block_tokens_;
  return count;
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
  const auto root = roots_.find(std::string(space));
  if (root == roots_.end()) return 0;
  size_t count = 0;
  for (Node* node = root->second.get(); (node = child(*node, block(tokens, count))) != nullptr;) {
    sequence.append_shared(node->pages);
    use(*node);
    count += block_tokens_;
  }
  return count;
}

PrefixIndex::Node* PrefixIndex::add_child(Node& node, std::span<const int32_t> block, const KvSequence& sequence) {
  auto made = std::make_unique<Node>();
  Node* added = made.get();
  added->parent = &node;
  added->tokens.assign(block.begin(), block.end());
  added->depth = node.parent == nullptr ? 0 : node.depth + block_tokens_;
  sequence.list_column(added->depth / block_tokens_, added->pages);
  for (PageId page : added->pages) pool_.ref(page);
  if (node.children.empty()) leaves_.erase(&node);
  node.children.emplace(hash_of(block), std::move(made));
  ++blocks_;
  return added;
}

void PrefixIndex::remember(std::string_view space, std::span<const int32_t> tokens, const KvSequence& sequence) {
  GODWIT_CHECK(tokens.size() <= static_cast<size_t>(sequence.next_position()));
  if (tokens.size() < block_tokens_) return;
  auto& root = roots_[std::string(space)];
  if (!root) root = std::make_unique<Node>();
  Node* node = root.get();
  for (size_t begin = 0; !block(tokens, begin).empty(); begin += block_tokens_) {
    Node* next = child(*node, block(tokens, begin));
    if (next == nullptr) next = add_child(*node, block(tokens, begin), sequence);
    use(*next);
    node = next;
  }
}

size_t PrefixIndex::drop(Node* leaf) {
  const size_t before = pool_.pages_in_use();
  leaves_.erase(leaf);
  spent_ = std::max(spent_, leaf->worth);
  for (PageId page : leaf->pages) pool_.unref(page);
  Node* parent = leaf->parent;
  const auto [begin, end] = parent->children.equal_range(hash_of(leaf->tokens));
  parent->children.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == leaf; }));
  --blocks_;
  if (parent->children.empty() && parent->parent != nullptr) leaves_.insert(parent);
  return before - pool_.pages_in_use();
}

size_t PrefixIndex::release(size_t pages) {
  size_t freed = 0;
  // Leaves that sequences use would free nothing, and so would their ancestors: a sequence holds its whole prefix.
  for (auto it = leaves_.begin(); it != leaves_.end() && freed < pages;) {
    Node* leaf = *it;
    if (std::all_of(leaf->pages.begin(), leaf->pages.end(), [&](PageId page) { return pool_.shared(page); })) {
      ++it;
      continue;
    }
    freed += drop(leaf);
    it = leaves_.begin();  // the parent may be cheaper than what was passed
  }
  return freed;
}

size_t PrefixIndex::releasable_pages() const {
  size_t count = 0;
  for (const auto& [space, root] : roots_)
    visit(*root, [&](const Node& node) {
      for (PageId page : node.pages) count += pool_.shared(page) ? 0 : 1;
    });
  return count;
}

}  // namespace godwit
