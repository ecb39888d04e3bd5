// Blocks that ranks offer are computed once each, by whoever takes them, and attention keeps its bits.
#include "dist/work_board.h"

#include <atomic>
#include <cstring>

#include "dist/ring_testing.h"
#include "dist/stopwatch.h"

namespace godwit::dist {
namespace {

using namespace testing;

constexpr WorkBoard::Shape kShape = {1000, 64, 32};

void with_boards(int count, const std::function<void(Transport&, WorkBoard&)>& rank) {
  auto links = make_local_links(count);
  std::vector<std::thread> threads;
  for (auto& link : links)
    threads.emplace_back([&rank, &link] {
      Transport transport(std::move(link));
      ASSERT_TRUE(transport.join());
      const auto board = value_of(WorkBoard::create(transport, kShape));
      ASSERT_NE(board, nullptr);
      rank(transport, *board);
      ASSERT_TRUE(transport.barrier());
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(OfferedWalk, BlocksCoverAllRowsLaterOnesFirst) {
  const OfferedWalk walk{.row_count = 130, .rows_per_block = 64};
  ASSERT_EQ(walk.blocks(), 3);
  EXPECT_EQ(walk.block_end(0), 130);
  EXPECT_EQ(walk.block_begin(0), 66);
  EXPECT_EQ(walk.block_end(2), 2);
  EXPECT_EQ(walk.block_begin(2), 0);
}

TEST(WorkBoard, EveryBlockIsTakenOnceAndOthersSeeWhatIsOnIt) {
  constexpr int kRounds = 50, kBlocks = 40;
  std::atomic<int> taken[kBlocks] = {};
  with_boards(3, [&](Transport& transport, WorkBoard& board) {
    for (uint16_t round = 1; round <= kRounds; ++round) {
      if (transport.rank() == 0) {
        const OfferedWalk walk{.layer = round, .row_count = kBlocks, .scale = 0.5f};
        for (int i = 0; i < kBlocks; ++i) {
          const int32_t position = round * 100 + i;
          std::memcpy(board.positions(0) + static_cast<size_t>(i) * 4, &position, 4);
        }
        board.offer(round, 7, walk);
        while (const auto block = board.take_own()) {
          ++taken[*block];
          board.states(0)[*block] = static_cast<std::byte>(round);
        }
        ASSERT_TRUE(transport.wait_until([&] { return board.all_returned(); }, [](double) { return "not returned"; }));
        EXPECT_EQ(board.rank_that_owes(), -1);
        for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(board.states(0)[i], static_cast<std::byte>(round));
        EXPECT_EQ(board.withdraw() % 5, 0);
        ASSERT_TRUE(transport.barrier());
      } else {
        transport.set_meanwhile([&] {
          const auto mine = board.take(round, UINT32_MAX);
          if (!mine) return false;
          EXPECT_EQ(mine->owner, 0);
          EXPECT_EQ(mine->walk.layer, round);
          EXPECT_EQ(mine->walk.scale, 0.5f);
          int32_t position = 0;
          std::memcpy(&position, board.positions(0) + static_cast<size_t>(mine->block) * 4, 4);
          EXPECT_EQ(position, round * 100 + mine->block);
          board.states(0)[mine->block] = static_cast<std::byte>(round);
          ++taken[mine->block];
          board.give_back(*mine, 5);
          return true;
        });
        ASSERT_TRUE(transport.barrier());
        transport.set_meanwhile({});
      }
    }
  });
  for (const auto& count : taken) EXPECT_EQ(count, kRounds);
}

TEST(WorkBoard, WhoIsBehindTheMostGoesFirstAndOtherStepsCountForNothing) {
  with_boards(4, [](Transport& transport, WorkBoard& board) {
    const int rank = transport.rank();
    if (rank > 0)
      board.offer(static_cast<uint16_t>(rank == 3 ? 8 : 9), static_cast<uint16_t>(10 - 2 * rank), {.row_count = 2});
    ASSERT_TRUE(transport.barrier());
    if (rank == 0) {
      EXPECT_FALSE(board.take(9, 6));  // nobody is before that
      EXPECT_FALSE(board.take(7, 100));
      for (int owner : {2, 2, 1, 1}) {
        const auto taken = board.take(9, 100);
        ASSERT_TRUE(taken);
        EXPECT_EQ(taken->owner, owner);
        board.give_back(*taken, 1);
      }
      EXPECT_FALSE(board.take(9, 100));
      EXPECT_TRUE(board.take(8, 100));  // and never returned
    }
    ASSERT_TRUE(transport.barrier());
    if (rank == 1 || rank == 2) {
      EXPECT_TRUE(board.all_returned());
      EXPECT_EQ(board.withdraw(), 2);
    }
    if (rank == 3) {
      EXPECT_TRUE(board.take_own());
      EXPECT_FALSE(board.take_own());
      EXPECT_FALSE(board.all_returned());
      EXPECT_EQ(board.rank_that_owes(), 0);
    }
  });
}

TEST(WorkBoard, IsNotThereWhereMemoryIsNotShared) {
  auto links = make_local_links(1);
  Transport transport(std::move(links[0]));
  ASSERT_TRUE(transport.join());
  EXPECT_EQ(value_of(WorkBoard::create(transport, kShape)), nullptr);
}

// Each rank in turn leaves all its rows to the others: prompts, parts of prompts, windows, unequal rows.
TEST(WorkBoard, AttentionOfRowsThatOthersComputedHasTheSameBits) {
  for (const int32_t window : {0, 300})
    for (const KvFormat& format : {KvFormat{DType::kF16, 32, 16}, KvFormat{DType::kF16, 32, 16, 8, 8}}) {
      RingCase c;
      c.ranks = 3;
      c.window = window;
      c.format = format;
      const std::vector<RingStep> steps = {{{0, 700}}, {{700, 1500}}, {{1500, 1503}}, {{1503, 2600}}};
      const Outputs want = alone(c, steps);
      c.shared = true;
      c.options.least_offer = 1;
      for (int idle : {-1, 0, 2})
        for (const Shares& shares : {Shares(), Shares{3333, 4096, 777}}) {
          c.idle = idle;
          c.shares = shares;
          const RingRun run = together(c, steps);
          ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
          EXPECT_EQ(run.outputs, want) << window << " " << idle << " " << shares.size();
          double stolen = 0;
          for (const RingTimes& times : run.times) stolen += times.stolen_s;
          if (idle < 0) continue;
          EXPECT_GT(stolen, 0);
          EXPECT_EQ(run.times[static_cast<size_t>(idle)].attention_s, 0);
          EXPECT_GT(run.times[static_cast<size_t>(idle)].relieved_s, 0);
        }
    }
}

// Heads with keys of their own and in pairs; a rank that has no part in the sequence has none in its rows.
TEST(WorkBoard, RowsOfFewerRanksAndMoreHeadsHaveTheSameBits) {
  for (const int kv_heads : {4, 2}) {
    RingCase c;
    c.ranks = 3;
    c.kv_heads = kv_heads;
    const std::vector<RingStep> steps = {{{0, 700}}, {{700, 1500}}, {{1500, 2600}}};
    const Outputs want = alone(c, steps);
    c.shared = true;
    c.first = 1;
    c.degree = 2;
    c.idle = 1;
    c.options.least_offer = 1;
    const RingRun run = together(c, steps);
    ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
    EXPECT_EQ(run.outputs, want) << kv_heads;
    EXPECT_EQ(run.times[0].stolen_s, 0);
    EXPECT_EQ(run.times[1].attention_s, 0);
    EXPECT_GT(run.times[2].stolen_s, 0);
  }
}

TEST(WorkBoard, WithoutItRanksComputeTheirOwnRows) {
  RingCase c;
  c.ranks = 2;
  c.shared = true;
  c.options.least_offer = 1;
  c.options.steal = false;
  const RingRun run = together(c, {{{0, 900}}, {{900, 1800}}});
  ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
  for (const RingTimes& times : run.times) EXPECT_EQ(times.stolen_s + times.relieved_s, 0);
}

// Rows that nobody returns end the run.
TEST(WorkBoard, WaitingForRowsEndsInTimeAndWorkMeanwhileIsNoWaiting) {
  auto links = make_local_links(1);
  Transport transport(std::move(links[0]), {.timeout_s = 0.2});
  ASSERT_TRUE(transport.join());
  int works = 0;
  transport.set_meanwhile([&] {
    if (++works > 3) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return true;
  });
  const double before = transport.waited_s();
  const Stopwatch watch;
  const Status status = transport.wait_until([] { return false; }, [](double) { return "rank 7 keeps them"; });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "rank 7 keeps them");
  EXPECT_EQ(transport.status().error().message, "rank 7 keeps them");
  EXPECT_GT(transport.waited_s() - before, 0.0);
  EXPECT_LE(transport.waited_s() - before, watch.seconds() - 3 * 0.02);
  EXPECT_GT(works, 3);
}

}  // namespace
}  // namespace godwit::dist
