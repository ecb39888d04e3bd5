// Thousands of random operations on forks of sequences under small budgets, against a model that stores each slot's
// position, bias, K and V in plain vectors. After every step contents, positions, biases, what the kernels would read
// of the aux slab, budgets and integrity must agree, also when the pool was exhausted.
#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "backend/kv_codes_testing.h"
#include "kv/fake_kv_backend.h"
#include "kv/sequence.h"

namespace godwit {
namespace {

struct ModelSlot {
  int32_t position;
  float bias;
  std::vector<float> k, v;
};

// K[page_tokens, head_dim], then V, of a page of f32 numbers or of codes in the canonical layout.
std::vector<float> numbers_of(const std::vector<std::byte>& canonical, const KvFormat& format) {
  const auto tokens = static_cast<size_t>(format.page_tokens), width = static_cast<size_t>(format.head_dim);
  std::vector<float> numbers(2 * tokens * width);
  if (!format.has_codes()) {
    std::memcpy(numbers.data(), canonical.data(), canonical.size());
    return numbers;
  }
  const std::byte* half = canonical.data();
  for (size_t begin = 0; begin < numbers.size(); begin += tokens * width) {
    const int bits = begin == 0 ? format.k_bits : format.v_bits;
    const size_t code_bytes = tokens * width * static_cast<size_t>(bits) / 8;
    std::vector<uint16_t> scales(2 * tokens);
    std::memcpy(scales.data(), half + code_bytes, scales.size() * sizeof(uint16_t));
    for (size_t i = 0; i < tokens * width; ++i) {
      const auto byte = static_cast<uint8_t>(half[i * static_cast<size_t>(bits) / 8]);
      const auto code = static_cast<uint8_t>(bits == 8 ? byte : i % 2 == 0 ? byte & 15 : byte >> 4);
      numbers[begin + i] = kv_code_number(bits, code, {scales[i / width], scales[tokens + i / width]});
    }
    half += code_bytes + scales.size() * sizeof(uint16_t);
  }
  return numbers;
}

struct Pair {
  std::unique_ptr<KvSequence> real;
  std::vector<std::vector<ModelSlot>> heads;  // [layers * kv_heads]
  int32_t next_position = 0;
};

struct Setting {
  const char* name;
  KvFormat format;
  KvShape shape;
  size_t budget_pages;
  int steps;
};

class World {
 public:
  World(Backend& backend, const Setting& setting, uint32_t seed)
      : backend_(backend),
        shape_(setting.shape),
        format_(setting.format),
        pool_(KvPool::create(backend, format_, setting.budget_pages * format_.page_bytes() + 40).value()),
        random_(seed) {}

  void step() {
    if (pairs_.empty()) return add_empty();
    Pair& pair = pairs_[below(pairs_.size())];
    switch (below(12)) {
      case 0:
        return pairs_.size() < 6 ? fork(pair) : die();
      case 1:
        return below(3) == 0 ? add_empty() : truncate(pair);
      case 2:
        return below(3) == 0 ? die() : truncate(pair);
      case 3:
      case 4:
      case 5:
        return retain(pair);
      case 6:
        return set_biases(pair);
      default:
        return append(pair);
    }
  }

  void compare() {
    for (const Pair& pair : pairs_) {
      ASSERT_EQ(pair.real->next_position(), pair.next_position);
      for (int layer = 0; layer < shape_.layers; ++layer)
        for (int head = 0; head < shape_.kv_heads; ++head) compare_head(pair, layer, head);
      Status status = pair.real->check_integrity();
      ASSERT_TRUE(status) << status.error().message;
    }
    Status status = pool_->check_integrity();
    ASSERT_TRUE(status) << status.error().message;
  }

  void end() {
    // Otherwise the setting tests less than it says.
    for (const Tally& tally : {appends_, drops_, biases_}) {
      EXPECT_GT(tally.refused, 0);
      EXPECT_GT(tally.done, tally.refused);
    }
    pairs_.clear();
    EXPECT_EQ(pool_->bytes_in_use(), 0u);
    EXPECT_EQ(pool_->aux_in_use(), 0u);
    EXPECT_TRUE(pool_->check_integrity());
    EXPECT_LE(pool_->peak_bytes(), pool_->budget_bytes());
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  std::vector<ModelSlot>& model(Pair& pair, int layer, int head) {
    return pair.heads[static_cast<size_t>(layer * shape_.kv_heads + head)];
  }
  struct Tally {
    int done = 0, refused = 0;
  };
  static bool note(KvOutcome outcome, Tally& tally) {
    ++(outcome ? tally.done : tally.refused);
    return static_cast<bool>(outcome);
  }

  void add_empty() {
    Pair pair{std::make_unique<KvSequence>(*pool_, shape_), {}, 0};
    pair.heads.resize(static_cast<size_t>(shape_.layers * shape_.kv_heads));
    pairs_.push_back(std::move(pair));
  }
  void fork(const Pair& pair) { pairs_.push_back({pair.real->fork(), pair.heads, pair.next_position}); }
  void die() { pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(below(pairs_.size()))); }

  void append(Pair& pair) {
    const int tokens = below(2) ? 1 : static_cast<int>(1 + below(static_cast<size_t>(format_.page_tokens) * 2));
    const int32_t first = pair.next_position + (below(10) == 0 ? static_cast<int32_t>(below(9)) : 0);
    const size_t bytes = pool_->bytes_in_use();
    const KvNeed need = pair.real->append_need(tokens, first);
    const size_t wanted = bytes + need.page_bytes + need.aux * format_.aux_bytes();
    const bool appended = note(pair.real->append(tokens, first), appends_);
    EXPECT_EQ(appended, wanted <= pool_->budget_bytes());
    EXPECT_EQ(pool_->bytes_in_use(), appended ? wanted : bytes);
    if (!appended) return;
    const auto width = static_cast<size_t>(format_.head_dim);
    const size_t rows = static_cast<size_t>(tokens * shape_.kv_heads);
    for (int layer = 0; layer < shape_.layers; ++layer) {
      std::vector<float> k(rows * width), v(rows * width);
      const int wrap = format_.has_codes() ? 1009 : std::numeric_limits<int>::max();
      for (float& x : k) x = static_cast<float>(++serial_ % wrap);
      for (float& x : v) x = static_cast<float>(++serial_ % wrap);
      write(*pair.real, layer, tokens, k, v);
      for (size_t i = 0; i < rows; ++i) {
        auto row = [&](const std::vector<float>& x) {
          auto begin = x.begin() + static_cast<ptrdiff_t>(i * width);
          return std::vector<float>(begin, begin + static_cast<ptrdiff_t>(width));
        };
        const int token = static_cast<int>(i) / shape_.kv_heads, head = static_cast<int>(i) % shape_.kv_heads;
        model(pair, layer, head)
            .push_back({first + token, 0, as_stored(row(k), format_.k_bits), as_stored(row(v), format_.v_bits)});
      }
    }
    pair.next_position = first + tokens;
  }

  void write(const KvSequence& sequence, int layer, int tokens, std::vector<float>& k, std::vector<float>& v) {
    std::vector<KvSlot> slots;
    sequence.tail_slots(layer, tokens, slots);
    Buffer memory = backend_.allocate((k.size() + v.size()) * sizeof(float)).value();
    std::byte* v_data = memory.data() + k.size() * sizeof(float);
    backend_.upload(memory.data(), std::as_bytes(std::span(k)));
    backend_.upload(v_data, std::as_bytes(std::span(v)));
    backend_.kv_write({.format = format_,
                       .slab = pool_->slab(),
                       .slots = slots,
                       .k = Tensor(memory.data(), DType::kF32, {tokens, shape_.kv_heads, format_.head_dim}),
                       .v = Tensor(v_data, DType::kF32, {tokens, shape_.kv_heads, format_.head_dim})});
  }

  void truncate(Pair& pair) {
    const size_t most =
        below(4) ? static_cast<size_t>(2 * format_.page_tokens) : static_cast<size_t>(pair.next_position);
    const int32_t end = std::max(0, pair.next_position + 1 - static_cast<int32_t>(below(most + 2)));
    pair.real->truncate(end);
    pair.next_position = std::min(pair.next_position, end);
    for (auto& head : pair.heads) std::erase_if(head, [&](const ModelSlot& slot) { return slot.position >= end; });
  }

  // Every other slot, a run, a random set, whole pages, or nothing.
  bool keeps(size_t style, size_t slot, size_t a, size_t b) {
    const auto page_tokens = static_cast<size_t>(format_.page_tokens);
    if (style == 0) return slot % 2 == 0;
    if (style == 1) return slot < std::min(a, b) || slot > std::max(a, b);
    if (style == 2) return below(3) > 0;
    if (style == 3) return (slot / page_tokens) % 2 == a % 2;
    return false;
  }

  void retain(Pair& pair) {
    const int layer = static_cast<int>(below(static_cast<size_t>(shape_.layers)));
    const int head = static_cast<int>(below(static_cast<size_t>(shape_.kv_heads)));
    std::vector<ModelSlot>& slots = model(pair, layer, head);
    if (slots.empty()) return;
    const size_t style = below(20) == 0 ? 4 : below(4), a = below(slots.size()), b = below(slots.size());
    std::vector<uint32_t> kept, dropped;
    for (uint32_t i = 0; i < slots.size(); ++i) (keeps(style, i, a, b) ? kept : dropped).push_back(i);
    const size_t bytes = pool_->bytes_in_use();
    const KvOutcome outcome = below(2) ? pair.real->retain(layer, head, kept) : pair.real->drop(layer, head, dropped);
    if (!note(outcome, drops_)) {
      EXPECT_EQ(pool_->bytes_in_use(), bytes);
      return;
    }
    std::vector<ModelSlot> left;
    for (uint32_t i : kept) left.push_back(slots[i]);
    slots = std::move(left);
  }

  void set_biases(Pair& pair) {
    const int layer = static_cast<int>(below(static_cast<size_t>(shape_.layers)));
    const int head = static_cast<int>(below(static_cast<size_t>(shape_.kv_heads)));
    std::vector<ModelSlot>& slots = model(pair, layer, head);
    std::vector<uint32_t> chosen;
    std::vector<float> biases;
    for (uint32_t i = 0; i < slots.size(); ++i) {
      if (below(8) > 0) continue;
      chosen.push_back(i);
      biases.push_back(static_cast<float>(below(3)));
    }
    if (!note(pair.real->set_biases(layer, head, chosen, biases), biases_)) return;
    for (size_t i = 0; i < chosen.size(); ++i) slots[chosen[i]].bias = biases[i];
  }

  void compare_head(const Pair& pair, int layer, int head) {
    const auto& slots = pair.heads[static_cast<size_t>(layer * shape_.kv_heads + head)];
    ASSERT_EQ(pair.real->slots(layer, head), slots.size());
    std::vector<PageRef> pages;
    pair.real->list_pages(layer, head, 0, pair.real->pages(layer, head), pages);
    const auto width = static_cast<size_t>(format_.head_dim), page_tokens = static_cast<size_t>(format_.page_tokens);
    std::vector<std::byte> canonical(format_.page_bytes());
    std::vector<int32_t> aux(format_.aux_bytes() / sizeof(int32_t));
    size_t next = 0;
    for (const PageRef& page : pages) {
      backend_.kv_export(format_, pool_->slab(), page.page, canonical);
      const std::vector<float> numbers = numbers_of(canonical, format_);
      if (page.aux != kNoAux)
        backend_.download(std::as_writable_bytes(std::span(aux)), pool_->aux_slab() + page.aux * format_.aux_bytes());
      for (size_t i = 0; i < page.count; ++i, ++next) {
        const ModelSlot& slot = slots[next];
        ASSERT_EQ(pair.real->position(layer, head, next), slot.position);
        ASSERT_EQ(pair.real->bias(layer, head, next), slot.bias);
        if (page.aux == kNoAux) {
          ASSERT_EQ(page.first_position + static_cast<int32_t>(i), slot.position);
          ASSERT_EQ(slot.bias, 0);
        } else {
          ASSERT_EQ(aux[i], slot.position);
          ASSERT_EQ(std::bit_cast<float>(aux[page_tokens + i]), slot.bias);
        }
        for (size_t d = 0; d < width; ++d) {
          ASSERT_EQ(numbers[i * width + d], slot.k[d]);
          ASSERT_EQ(numbers[(page_tokens + i) * width + d], slot.v[d]);
        }
      }
    }
    ASSERT_EQ(next, slots.size());
  }

  Backend& backend_;
  KvShape shape_;
  KvFormat format_;
  std::unique_ptr<KvPool> pool_;
  std::mt19937 random_;
  std::vector<Pair> pairs_;
  int serial_ = 0;
  Tally appends_, drops_, biases_;
};

void run(Backend& backend, const Setting& setting, uint32_t seed) {
  World world(backend, setting, seed);
  for (int step = 0; step < setting.steps; ++step) {
    world.step();
    world.compare();
    ASSERT_FALSE(testing::Test::HasFailure()) << setting.name << ", seed " << seed << ", step " << step;
  }
  world.end();
}

KvFormat f32(int head_dim, int page_tokens) {
  return {.dtype = DType::kF32, .head_dim = head_dim, .page_tokens = page_tokens};
}

KvFormat codes(int head_dim, int page_tokens, int k_bits, int v_bits) {
  return {.head_dim = head_dim, .page_tokens = page_tokens, .k_bits = k_bits, .v_bits = v_bits};
}

TEST(KvSequenceRandom, AgreesWithTheModelOnTheFakeBackend) {
  const Setting settings[] = {
      {"tight", f32(2, 4), {.layers = 1, .kv_heads = 2}, 30, 3000},
      {"roomy", f32(1, 4), {.layers = 2, .kv_heads = 2}, 100, 3000},
      {"odd pages", f32(1, 3), {.layers = 1, .kv_heads = 2}, 40, 2000},
  };
  for (const Setting& setting : settings) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      FakeKvBackend backend;
      run(backend, setting, seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(KvSequenceRandom, AgreesWithTheModelOnGuardedCpuMemory) {
  const Setting settings[] = {
      {"small pages", f32(32, 16), {.layers = 1, .kv_heads = 2}, 16, 3000},
      {"default pages", f32(64, 64), {.layers = 1, .kv_heads = 1}, 10, 1500},
      {"q8", codes(40, 16, 8, 8), {.layers = 1, .kv_heads = 2}, 16, 1500},
      {"q4", codes(32, 16, 4, 4), {.layers = 1, .kv_heads = 2}, 16, 1500},
      {"q4:k=8", codes(64, 64, 8, 4), {.layers = 1, .kv_heads = 1}, 10, 800},
  };
  for (const Setting& setting : settings) {
    auto backend = make_guarded_backend({.threads = 1, .simd = {}});
    ASSERT_TRUE(backend) << backend.error().message;
    run(**backend, setting, 1);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace godwit
