// Frames are checked, faults end a run soon and name the rank, and links can be shaped.
#include <atomic>
#include <cstring>

#include "dist/ring_testing.h"
#include "dist/stopwatch.h"

namespace godwit::dist {
namespace {

using namespace testing;

// Runs `body(transport)` on a thread per rank and returns what each said.
std::vector<Status> on_ranks(int ranks, const TransportOptions& options, const std::function<Status(Transport&)>& body,
                             LocalFaults faults = {}) {
  auto links = make_local_links(ranks, std::move(faults));
  std::vector<Status> said(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < links.size(); ++i)
    threads.emplace_back([&, i] {
      Transport transport(std::move(links[i]), options);
      said[i] = transport.join();
      if (said[i]) said[i] = body(transport);
    });
  for (std::thread& thread : threads) thread.join();
  return said;
}

Frame frame_of(std::string_view text) {
  Frame frame(text.size());
  std::memcpy(frame.payload(text.size()).data(), text.data(), text.size());
  return frame;
}

void expect_mentions(const Status& status, std::initializer_list<std::string_view> words) {
  ASSERT_FALSE(status.has_value());
  for (std::string_view word : words)
    EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
}

TEST(Frame, TellsWhatIsWrongWithIt) {
  Frame frame = frame_of("hello");
  frame.seal(FrameKind::kPages, 42, 5);
  const size_t whole = Frame::kHeaderBytes + 5;
  EXPECT_TRUE(frame.check(FrameKind::kPages, 42, 5, whole));
  expect_mentions(frame.check(FrameKind::kPages, 43, 5, whole), {"another job"});
  expect_mentions(frame.check(FrameKind::kStates, 42, 5, whole), {"partial sums", "kind 4"});
  expect_mentions(frame.check(FrameKind::kPages, 42, 4, whole), {"5 bytes instead of 4"});
  expect_mentions(frame.check(FrameKind::kPages, 42, 5, whole - 1), {"4 bytes"});
  expect_mentions(frame.check(FrameKind::kPages, 42, 5, 10), {"shorter than its header"});
  for (size_t bit = 0; bit < 8 * whole; ++bit) {
    std::byte& byte = frame.whole(5)[bit / 8];
    byte ^= std::byte{1} << bit % 8;
    EXPECT_FALSE(frame.check(FrameKind::kPages, 42, 5, whole)) << bit;
    byte ^= std::byte{1} << bit % 8;
  }
  EXPECT_TRUE(frame.check(FrameKind::kPages, 42, 5, whole));
  frame.payload(5)[3] ^= std::byte{1};
  expect_mentions(frame.check(FrameKind::kPages, 42, 5, whole), {"damaged"});
}

TEST(Frame, ChecksumSeesEveryBit) {
  std::vector<std::byte> bytes(77);
  const uint64_t zero = checksum(bytes);
  for (size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= std::byte{1} << bit;
      EXPECT_NE(checksum(bytes), zero) << i;
      bytes[i] ^= std::byte{1} << bit;
    }
  EXPECT_NE(checksum(std::span(bytes).first(76)), zero);
}

TEST(Transport, EveryoneGetsEveryonesBytes) {
  for (int ranks : {1, 2, 3, 8}) {
    const auto said = on_ranks(ranks, {}, [&](Transport& transport) -> Status {
      const auto mine = static_cast<std::byte>(10 + transport.rank());
      std::vector<std::byte> all;
      GODWIT_TRY(transport.all_gather(FrameKind::kReply, {&mine, 1}, all));
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(all[static_cast<size_t>(rank)], std::byte(10 + rank));
      EXPECT_EQ(transport.traffic(FrameKind::kReply).bytes, static_cast<uint64_t>(ranks - 1));
      return transport.barrier();
    });
    for (const Status& status : said) EXPECT_TRUE(status.has_value());
  }
}

TEST(Transport, AShapedLinkTakesItsTime) {
  const auto said = on_ranks(2, {.latency_s = 0.02, .bytes_per_second = 1e6}, [](Transport& transport) -> Status {
    constexpr size_t kBytes = 50'000;
    auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
    Frame frame(kBytes);
    std::vector<Transport::Pending> pending;
    int64_t sent = now();
    const int peer = 1;
    if (transport.rank() == 0) {
      std::memcpy(frame.payload(kBytes).data(), &sent, sizeof(sent));
      transport.send({&peer, 1}, frame, FrameKind::kPages, kBytes, pending);
      return transport.wait(pending);
    }
    transport.receive(0, frame, FrameKind::kPages, kBytes, pending);
    GODWIT_TRY(transport.wait(pending));
    std::memcpy(&sent, frame.payload(kBytes).data(), sizeof(sent));
    EXPECT_GE(static_cast<double>(now() - sent) * 1e-9, 0.07);  // 50 ms on the wire, and the latency
    return {};
  });
  for (const Status& status : said) EXPECT_TRUE(status.has_value());
}

RingCase three() {
  RingCase c;
  c.ranks = 3;
  return c;
}
const std::vector<RingStep> kSteps = {{{0, 600}}, {{600, 900}}, {{900, 901}, RingMode::kPassQ}};

TEST(RingFaults, ARankThatDiesIsNamed) {
  // Its link closes, as a process that ends closes its sockets.
  const Stopwatch watch;
  const RingRun run = together(three(), kSteps, {.timeout_s = 30}, {}, [](int rank, size_t step, Transport& transport) {
    if (rank == 2 && step == 1) transport.abort(1);
  });
  // Rank 2 goes on, unheard; the others must say who is gone.
  int named = 0;
  for (size_t rank : {0, 1}) {
    ASSERT_FALSE(run.statuses[rank].has_value());
    named += run.statuses[rank].error().message.find("rank 2 is gone") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(named, 0) << run.statuses[0].error().message << run.statuses[1].error().message;
  EXPECT_LT(watch.seconds(), 20);
}

TEST(RingFaults, ARankThatHangsIsNamedInTime) {
  const Stopwatch watch;
  const RingRun run = together(three(), kSteps, {}, {}, [&](int rank, size_t step, Transport& transport) {
    if (step < 2) return;
    transport.options().timeout_s = 1;
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(4));
  });
  EXPECT_LT(watch.seconds(), 30);
  int named = 0;
  for (size_t rank : {0, 2})
    if (!run.statuses[rank])
      named += run.statuses[rank].error().message.find("rank 1 has not answered for 1 s") != std::string::npos ? 1 : 0;
  EXPECT_GT(named, 0);
}

TEST(RingFaults, DamagedFramesAreRefused) {
  std::atomic<int> messages = 0;
  const RingRun run = together(three(), kSteps, {.timeout_s = 5}, {[&](int from, int to, std::span<std::byte> message) {
                                 if (from == 1 && to == 0 && message.size() > 1000 && ++messages == 3)
                                   message[500] ^= std::byte{4};
                               }});
  expect_mentions(run.statuses[0], {"rank 1", "damaged"});
}

TEST(RingFaults, FramesOfAnotherJobAreRefused) {
  std::atomic<int> messages = 0;
  const RingRun run = together(three(), kSteps, {.timeout_s = 5}, {[&](int from, int to, std::span<std::byte> message) {
                                 if (from == 2 && to == 0 && message.size() > 1000 && ++messages == 2)
                                   message[8] ^= std::byte{1};  // of the token
                               }});
  expect_mentions(run.statuses[0], {"rank 2", "another job"});
}

TEST(RingFaults, ATimeThatWasDamagedIsNotWaitedFor) {
  const Stopwatch watch;
  std::atomic<int> messages = 0;
  LocalFaults faults;
  faults.tamper = [&](int from, int to, std::span<std::byte> message) {
    if (from == 1 && to == 0 && message.size() > 1000 && ++messages == 2) message[39] ^= std::byte{0x40};  // of due
  };
  const RingRun run = together(three(), kSteps, {.timeout_s = 5, .bytes_per_second = 1e9}, faults);
  expect_mentions(run.statuses[0], {"rank 1", "damaged"});
  EXPECT_LT(watch.seconds(), 30);
}

TEST(RingFaults, ALinkThatIsTooSlowIsSaid) {
  const RingRun run = together(three(), kSteps, {.timeout_s = 0.5, .bytes_per_second = 2e3});
  int said = 0;
  for (const Status& status : run.statuses)
    said += !status && status.error().message.find("quicker --link") != std::string::npos ? 1 : 0;
  EXPECT_GT(said, 0);
}

// While a rank attends to a round, the next one is under way, or, on request, nothing.
TEST(Overlap, KeysAndValuesTravelWhileARankComputes) {
  const auto under_way = [](bool overlap) {
    RingCase c = three();
    c.options.overlap = overlap;
    std::atomic<size_t> with = 0, without = 0;
    LocalFaults faults;
    faults.polled = [&](size_t expected) { ++(expected > 0 ? with : without); };
    expect_all_well(together(c, {{{0, 3000}}}, {}, faults));
    EXPECT_GT(with + without, 0U);
    return static_cast<double>(with) / static_cast<double>(with + without);
  };
  EXPECT_GT(under_way(true), 0.3);  // of four rounds the last has none after it
  EXPECT_EQ(under_way(false), 0);
}

// The first round of a layer leaves during the layer before, once layers were seen, and where no page changes its form.
TEST(Overlap, ALayerBeginsBeforeTheOneBeforeItHasEnded) {
  const auto pages_before_and_after = [](bool overlap, bool seals) {
    RingCase c = three();
    c.options.overlap = overlap;
    c.format.seals = seals;
    if (seals) c.format.k_bits = c.format.v_bits = 4;
    std::string said;  // by rank 1 to rank 0
    std::mutex mutex;
    LocalFaults faults;
    faults.tamper = [&](int from, int to, std::span<std::byte> message) {
      const auto kind = static_cast<FrameKind>(message[4]);
      if (from != 1 || to != 0 || (kind != FrameKind::kSlots && kind != FrameKind::kPages)) return;
      std::lock_guard lock(mutex);
      said += kind == FrameKind::kSlots ? 'S' : 'P';
    };
    expect_all_well(together(c, {{{0, 1500}}, {{1500, 2400}}, {{2400, 3000}}}, {}, faults));
    const size_t second = said.rfind('S'), first = said.rfind('S', second - 1);
    return std::pair(second - first - 1, said.size() - second - 1);
  };
  const auto [before, after] = pages_before_and_after(true, false);
  EXPECT_EQ(before, after + 2);  // of as many in both layers
  for (const auto& [overlap, seals] : {std::pair(false, false), std::pair(true, true)}) {
    const auto [own, others] = pages_before_and_after(overlap, seals);
    EXPECT_EQ(own, others);
  }
}

}  // namespace
}  // namespace godwit::dist
