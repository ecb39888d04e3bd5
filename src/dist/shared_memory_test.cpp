// Ranks read and write each other's memory where it lies, and say so where they cannot.
#include "dist/shared_memory.h"

#include <thread>

#include "dist/ring_testing.h"

namespace godwit::dist {
namespace {

using namespace testing;

// Runs `rank` on threads with a transport each.
void with_transports(int count, const std::function<void(Transport&)>& rank) {
  auto links = make_local_links(count);
  std::vector<std::thread> threads;
  for (auto& link : links)
    threads.emplace_back([&rank, &link] {
      Transport transport(std::move(link));
      ASSERT_TRUE(transport.join());
      rank(transport);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(SharedMemory, OthersSeeWhatIsWritten) {
  with_transports(3, [](Transport& transport) {
    const SharedMemory own = value_of(SharedMemory::create(10000));
    const SharedView view = value_of(share(transport, &own, 48));
    own.memory().get()[9999] = static_cast<std::byte>(transport.rank() + 1);
    ASSERT_TRUE(transport.barrier());
    EXPECT_TRUE(view.everybody_reads_all());
    EXPECT_EQ(view.stride % 48, 0u);
    for (int owner = 0; owner < 3; ++owner) {
      const bool other = owner != transport.rank();
      EXPECT_EQ(view.reads(transport.rank(), owner), other);
      EXPECT_EQ(view.base.get()[static_cast<size_t>(owner) * view.stride + 9999], static_cast<std::byte>(owner + 1));
    }
    ASSERT_TRUE(transport.barrier());
  });
}

TEST(SharedMemory, WhoShowsNothingReadsNothingAndAllKnow) {
  with_transports(3, [](Transport& transport) {
    const SharedMemory own = value_of(SharedMemory::create(4096));
    const SharedView view = value_of(share(transport, transport.rank() == 1 ? nullptr : &own, 1));
    for (int owner = 0; owner < 3; ++owner)
      for (int reader = 0; reader < 3; ++reader)
        EXPECT_EQ(view.reads(reader, owner), owner != 1 && reader != 1 && owner != reader);
    EXPECT_FALSE(view.everybody_reads_all());
    ASSERT_TRUE(transport.barrier());
  });
}

TEST(SharedMemory, AttentionHasTheSameBitsAndSendsOnlyWherePagesLie) {
  RingCase c;
  c.ranks = 3;
  const std::vector<RingStep> steps = {{{0, 700}}, {{700, 1100}}, {{1100, 1103}}, {{1103, 1500}}};
  const Outputs want = alone(c, steps);
  c.shared = true;
  const RingRun run = together(c, steps);
  ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
  EXPECT_EQ(run.outputs, want);
  uint64_t bytes = 0, new_bytes = 0;
  for (const auto& traffic : run.traffic) {
    bytes += traffic[static_cast<size_t>(FrameKind::kPages)].bytes;
    new_bytes += traffic[static_cast<size_t>(FrameKind::kSlots)].bytes;
  }
  EXPECT_EQ(new_bytes, 0u);  // written where they are kept
  // Each of two others hears of each page of 16 tokens in 4 bytes, in 2 layers.
  size_t pages = 0;
  for (const RingStep& step : steps) pages += static_cast<size_t>((step.run.end + 15) / 16);
  EXPECT_EQ(bytes, pages * 2 * 2 * sizeof(PageId));
}

// Steps of a few tokens: several ranks write into one page at a time.
TEST(SharedMemory, RanksWriteIntoOnePageInEveryFormat) {
  for (const KvFormat& format :
       {KvFormat{DType::kF32, 32, 16}, KvFormat{DType::kBF16, 32, 16}, KvFormat{DType::kF16, 32, 16},
        KvFormat{DType::kF16, 32, 16, 8, 8}, KvFormat{DType::kF16, 32, 16, 4, 4}}) {
    RingCase c;
    c.ranks = 4;
    c.format = format;
    std::vector<RingStep> steps = {{{0, 300}}};
    for (int32_t at = 300; at < 370; at += 7) steps.push_back({{at, at + 7}});
    const Outputs want = alone(c, steps);
    c.shared = true;
    for (const Shares& shares : {Shares(), Shares{3333, 4096, 777, 2001}}) {
      c.shares = shares;
      const RingRun run = together(c, steps);
      ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
      EXPECT_EQ(run.outputs, want) << format.k_bits << " " << shares.size();
    }
  }
}

// As of ranks on several hosts: some read each other's pages, others get them sent.
TEST(SharedMemory, WhatIsNotSharedIsSent) {
  RingCase c;
  c.ranks = 3;
  const std::vector<RingStep> steps = {{{0, 700}}, {{700, 1100}}, {{1100, 1500}}};
  const Outputs want = alone(c, steps);
  const auto pages_sent = [](const RingRun& run, size_t rank) {
    return run.traffic[rank][static_cast<size_t>(FrameKind::kPages)].bytes;
  };
  const RingRun apart = together(c, steps);
  ASSERT_NO_FATAL_FAILURE(expect_all_well(apart));
  c.shared = true;
  c.hides = 1;
  const RingRun run = together(c, steps);
  ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
  EXPECT_EQ(run.outputs, want);
  EXPECT_EQ(pages_sent(run, 1), pages_sent(apart, 1));
  for (size_t rank : {0, 2})
    EXPECT_NEAR(pages_sent(run, rank), pages_sent(apart, rank) / 2.0, pages_sent(apart, rank) / 20.0);
}

}  // namespace
}  // namespace godwit::dist
