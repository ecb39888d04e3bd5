#include "dist/work_board.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "base/check.h"

namespace godwit::dist {
namespace {

constexpr size_t kLine = 64;

constexpr size_t in_lines(size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

// What is offered and how much of it is taken, in one word, so that who takes a block knows of which offer it is.
struct Word {
  uint16_t step = 0, stage = 0, blocks = 0, taken = 0;

  static Word of(uint64_t bits) {
    return {static_cast<uint16_t>(bits >> 48), static_cast<uint16_t>(bits >> 32), static_cast<uint16_t>(bits >> 16),
            static_cast<uint16_t>(bits)};
  }
  uint64_t bits() const {
    return uint64_t{step} << 48 | uint64_t{stage} << 32 | uint64_t{blocks} << 16 | uint64_t{taken};
  }
  int left() const { return blocks - taken; }
};

constexpr int32_t kNobody = -1, kReturned = -2;

}  // namespace

struct WorkBoard::Head {
  alignas(kLine) std::atomic<uint64_t> word{0};
  alignas(kLine) std::atomic<int32_t> returned{0};
  std::atomic<int64_t> worked_ns{0};  // by others
  OfferedWalk walk;
  std::atomic<int32_t> takers[kMaxBlocks] = {};  // a rank, kNobody, kReturned
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

WorkBoard::WorkBoard(SharedView view, const Shape& shape, int rank)
    : view_(std::move(view)), rank_(rank), ranks_(static_cast<int>(view_.readers.size())) {
  queries_at_ = in_lines(sizeof(Head));
  positions_at_ = queries_at_ + in_lines(shape.rows * shape.query_bytes);
  states_at_ = positions_at_ + in_lines(shape.rows * sizeof(int32_t));
}

Result<std::unique_ptr<WorkBoard>> WorkBoard::create(Transport& transport, const Shape& shape) {
  const size_t bytes = in_lines(sizeof(Head)) + in_lines(shape.rows * shape.query_bytes) +
                       in_lines(shape.rows * sizeof(int32_t)) + in_lines(shape.rows * shape.state_bytes);
  auto memory = SharedMemory::create(bytes);  // without it, nobody has a board
  if (memory) new (memory->memory().get()) Head;
  GODWIT_ASSIGN(SharedView view, share(transport, memory ? &*memory : nullptr, kLine));
  if (!view.everybody_reads_all()) return std::unique_ptr<WorkBoard>();
  return std::unique_ptr<WorkBoard>(new WorkBoard(std::move(view), shape, transport.rank()));
}

WorkBoard::Head& WorkBoard::head(int rank) const {
  return *std::launder(reinterpret_cast<Head*>(board(rank)));
}

void WorkBoard::offer(uint16_t step, uint16_t stage, const OfferedWalk& walk) {
  Head& own = head(rank_);
  const int32_t blocks = walk.blocks();
  GODWIT_CHECK(blocks > 0 && blocks <= kMaxBlocks && all_returned());
  own.walk = walk;
  own.returned.store(0, std::memory_order_relaxed);
  own.worked_ns.store(0, std::memory_order_relaxed);
  for (int32_t block = 0; block < blocks; ++block) own.takers[block].store(kNobody, std::memory_order_relaxed);
  own.word.store(Word{step, stage, static_cast<uint16_t>(blocks), 0}.bits(), std::memory_order_release);
}

// One block more than was seen to be taken, unless someone was quicker.
std::optional<int32_t> WorkBoard::take_from(int owner, uint64_t seen) {
  Head& from = head(owner);
  const Word word = Word::of(seen);
  if (word.left() <= 0 || !from.word.compare_exchange_strong(seen, seen + 1, std::memory_order_acq_rel)) return {};
  GODWIT_CHECK(word.taken < kMaxBlocks, "rank {} offers more blocks than a board has", owner);
  from.takers[word.taken].store(rank_, std::memory_order_relaxed);
  return word.taken;
}

std::optional<int32_t> WorkBoard::take_own() {
  for (;;) {
    const uint64_t seen = head(rank_).word.load(std::memory_order_acquire);
    if (Word::of(seen).left() <= 0) return {};
    if (const auto block = take_from(rank_, seen)) {
      give_back({rank_, *block, {}}, 0);  // who waits for all to be returned has done this one before
      return block;
    }
  }
}

bool WorkBoard::all_returned() const {
  const Head& own = head(rank_);
  const Word word = Word::of(own.word.load(std::memory_order_acquire));
  return word.left() == 0 && own.returned.load(std::memory_order_acquire) == word.blocks;
}

int WorkBoard::rank_that_owes() const {
  const Head& own = head(rank_);
  const Word word = Word::of(own.word.load(std::memory_order_acquire));
  for (int32_t block = 0; block < word.taken; ++block)
    if (const int32_t taker = own.takers[block].load(std::memory_order_relaxed); taker != kReturned) return taker;
  return -1;
}

int64_t WorkBoard::withdraw() {
  GODWIT_CHECK(all_returned());
  return head(rank_).worked_ns.load(std::memory_order_relaxed);
}

std::optional<WorkBoard::Taken> WorkBoard::take(uint16_t step, uint32_t stage) {
  for (;;) {
    int owner = -1;
    uint64_t seen = 0;
    Word best;
    for (int i = 1; i < ranks_; ++i) {  // not all begin with the same one
      const int rank = (rank_ + i) % ranks_;
      const uint64_t bits = head(rank).word.load(std::memory_order_acquire);
      const Word word = Word::of(bits);
      if (word.step != step || word.left() <= 0 || word.stage >= stage) continue;
      if (owner >= 0 && (word.stage > best.stage || (word.stage == best.stage && word.left() <= best.left()))) continue;
      owner = rank, seen = bits, best = word;
    }
    if (owner < 0) return {};
    if (const auto block = take_from(owner, seen)) return Taken{owner, *block, head(owner).walk};
  }
}

void WorkBoard::give_back(const Taken& taken, int64_t worked_ns) {
  Head& to = head(taken.owner);
  to.worked_ns.fetch_add(worked_ns, std::memory_order_relaxed);
  to.takers[taken.block].store(kReturned, std::memory_order_relaxed);
  to.returned.fetch_add(1, std::memory_order_release);
}

}  // namespace godwit::dist
