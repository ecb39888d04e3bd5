#include "dist/transport.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "dist/stopwatch.h"

namespace godwit::dist {
namespace {

using Clock = std::chrono::steady_clock;  // one for all processes of a host

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}
double seconds_since(int64_t start_ns) {
  return static_cast<double>(now_ns() - start_ns) * 1e-9;
}

double thread_seconds() {
  return cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
}

}  // namespace

// A time of waiting, which counts from its beginning to its end, but for the work that is done meanwhile.
class Transport::Wait {
 public:
  explicit Wait(Transport& transport) : transport_(transport) {}
  ~Wait() {
    transport_.waited_s_ += seconds_since(start_) - worked_s_;
    transport_.waited_cpu_s_ += thread_seconds() - start_cpu_s_ - worked_cpu_s_;
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  // For the next of several.
  void begins() {
    turns_ = 0;
    since_begin_s_ = looked_s_ = 0;
    ended_ = -1;
    last_look_ = now_ns();
  }
  // Since then. Of a long time between two looks little counts: this rank was stopped, and the others maybe, too.
  double waited_s() const { return since_begin_s_; }

  // A rank that ended so long ago that its last words would be here; -1: none.
  int ended() {
    constexpr double kBetweenLooks = 0.1, kForLastWords = 1;
    if (ended_ < 0 && since_begin_s_ - looked_s_ > kBetweenLooks) {
      looked_s_ = since_begin_s_;
      ended_ = transport_.first_ended();
    }
    return since_begin_s_ - looked_s_ > kForLastWords ? ended_ : -1;
  }

  // Who waits works if there is something to do, spins a moment, then lets others have the core, then sleeps a little.
  void rest() {
    constexpr double kMostBetweenLooks = 1;
    since_begin_s_ += std::min(seconds_since(last_look_), kMostBetweenLooks);
    last_look_ = now_ns();
    if (works()) {
      turns_ = 0;
      return;
    }
    if (++turns_ < 200) return;
    if (turns_ < 2000) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(turns_ < 20000 ? 20 : 200));
  }

 private:
  bool works() {
    if (!transport_.meanwhile_) return false;
    const int64_t start = now_ns();
    const double cpu = thread_seconds();
    if (!transport_.meanwhile_()) return false;
    worked_s_ += seconds_since(start);
    worked_cpu_s_ += thread_seconds() - cpu;
    return true;
  }

  Transport& transport_;
  const int64_t start_ = now_ns();
  const double start_cpu_s_ = thread_seconds();
  double worked_s_ = 0, worked_cpu_s_ = 0;
  int64_t last_look_ = start_;
  double since_begin_s_ = 0, looked_s_ = 0;
  int ended_ = -1;
  int turns_ = 0;
};

Transport::Transport(std::unique_ptr<Link> link, const TransportOptions& options)
    : link_(std::move(link)), options_(options) {}

Status Transport::fail(Error error) {
  if (!failed_) {
    status_ = tl::unexpected(std::move(error));
    failed_.store(true, std::memory_order_release);
    link_->give_up();
  }
  return status_;
}

Status Transport::join() {
  // Before the token is known, frames carry 0.
  uint64_t token = 0;
  Frame frame(sizeof(token));
  std::vector<Pending> pending;
  if (rank() == 0) {
    std::random_device random;
    while (token == 0) token = uint64_t{random()} << 32 | random();
    std::memcpy(frame.payload(sizeof(token)).data(), &token, sizeof(token));
    std::vector<int> others;
    for (int peer = 1; peer < size(); ++peer) others.push_back(peer);
    send(others, frame, FrameKind::kHello, sizeof(token), pending);
  } else {
    receive(0, frame, FrameKind::kHello, sizeof(token), pending);
  }
  GODWIT_TRY(wait(pending));
  std::memcpy(&token, frame.payload(sizeof(token)).data(), sizeof(token));
  token_ = token;
  const Whereabouts own = own_whereabouts();
  std::vector<std::byte> all;
  GODWIT_TRY(all_gather(FrameKind::kHello, std::as_bytes(std::span(&own, 1)), all));
  places_.resize(static_cast<size_t>(size()));
  std::memcpy(places_.data(), all.data(), all.size());
  return {};
}

int Transport::first_ended() const {
  const auto at = std::find_if(places_.begin(), places_.end(), has_ended);
  return at == places_.end() ? -1 : static_cast<int>(at - places_.begin());
}

Status Transport::fail_without(int rank) {
  return fail({ErrorCode::kIo, fmt::format("rank {} has ended; what it or mpirun wrote says why", rank)});
}

Status Transport::look_for_ended() {
  const int rank = failed_ ? -1 : first_ended();
  return rank < 0 ? status() : fail_without(rank);
}

// When the last of `copies` messages of so many bytes is through, if they leave now.
int64_t Transport::due_time(size_t bytes, size_t copies) {
  if (options_.bytes_per_second <= 0) return 0;
  const double seconds = static_cast<double>(bytes * copies) / options_.bytes_per_second;
  busy_until_ns_ = std::max(busy_until_ns_, now_ns()) + static_cast<int64_t>(seconds * 1e9);
  return busy_until_ns_ + static_cast<int64_t>(options_.latency_s * 1e9);
}

void Transport::send(std::span<const int> peers, Frame& frame, FrameKind kind, size_t bytes,
                     std::vector<Pending>& pending) {
  if (failed_ || peers.empty()) return;
  frame.seal(kind, token_, bytes, due_time(bytes, peers.size()));
  for (int peer : peers) {
    pending.push_back({link_->send(peer, frame.whole(bytes)), nullptr, peer, kind, bytes});
    Traffic& traffic = traffic_[static_cast<size_t>(kind)];
    traffic.messages += 1;
    traffic.bytes += bytes;
  }
}

void Transport::receive(int from, Frame& frame, FrameKind kind, size_t bytes, std::vector<Pending>& pending) {
  if (failed_) return;
  pending.push_back({link_->receive(from, frame.whole(bytes)), &frame, from, kind, bytes});
}

Status Transport::wait_for(Wait& wait, Pending& pending, double timeout_s) {
  wait.begins();
  std::optional<size_t> arrived;
  while (!arrived) {
    auto done = link_->done(pending.ticket);
    if (!done)
      return fail({done.error().code, fmt::format("rank {} is gone ({} were on their way): {}", pending.peer,
                                                  frame_kind_name(pending.kind), done.error().message)});
    arrived = *done;
    if (arrived) break;
    if (const int rank = wait.ended(); rank >= 0) return fail_without(rank);
    if (wait.waited_s() > timeout_s)
      return fail(
          {ErrorCode::kIo,
           fmt::format("rank {} has not {} for {:.3g} s ({}): it hangs, or is so slow that --rank-timeout must be "
                       "raised",
                       pending.peer, pending.frame != nullptr ? "answered" : "taken what was sent", timeout_s,
                       frame_kind_name(pending.kind))});
    wait.rest();
  }
  if (pending.frame == nullptr) return {};
  if (Status status = pending.frame->check(pending.kind, token_, pending.bytes, *arrived); !status)
    return fail({status.error().code, fmt::format("rank {} sent what cannot be used: {}; check the network and the "
                                                  "memory of its machine",
                                                  pending.peer, status.error().message)});
  if (options_.bytes_per_second <= 0) return {};
  while (pending.frame->due() > now_ns()) {
    if (wait.waited_s() > timeout_s)
      return fail({ErrorCode::kIo,
                   fmt::format("over so slow a link {} of rank {} take longer than {:.3g} s: give a quicker --link, or "
                               "raise --rank-timeout",
                               frame_kind_name(pending.kind), pending.peer, timeout_s)});
    link_->poll();
    wait.rest();
  }
  return {};
}

Status Transport::wait_all(std::vector<Pending>& pending, double timeout_s) {
  Wait wait(*this);
  if (!failed_)
    for (Pending& one : pending)
      if (!wait_for(wait, one, timeout_s)) break;
  pending.clear();
  return status();
}

Status Transport::wait(std::vector<Pending>& pending) {
  return wait_all(pending, options_.timeout_s);
}

Status Transport::wait_idly(std::vector<Pending>& pending) {
  const double before = waited_s_;  // CPU time counts: the process has spent it
  Status status = wait_all(pending, options_.timeout_s * options_.idle_timeouts);
  waited_s_ = before;
  return status;
}

Status Transport::wait_until(const std::function<bool()>& ready, const std::function<std::string(double)>& late) {
  // Others may wait for this rank's next message already; who knows whom it waits for had better speak first.
  const double limit_s = 0.9 * options_.timeout_s;
  Wait wait(*this);
  wait.begins();
  while (!failed_ && !ready()) {
    if (wait.waited_s() > limit_s) return fail({ErrorCode::kIo, late(limit_s)});
    if (const int rank = wait.ended(); rank >= 0) return fail_without(rank);
    link_->poll();
    wait.rest();
  }
  return status();
}

Status Transport::all_gather(FrameKind kind, std::span<const std::byte> mine, std::vector<std::byte>& all) {
  const size_t bytes = mine.size();
  all.resize(bytes * static_cast<size_t>(size()));
  auto place = [&](int peer) { return all.data() + static_cast<size_t>(peer) * bytes; };
  Frame own(bytes);
  if (bytes > 0) std::memcpy(own.payload(bytes).data(), mine.data(), bytes);
  std::vector<Frame> frames(static_cast<size_t>(size()));
  std::vector<Pending> pending;
  std::vector<int> others;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    others.push_back(peer);
    receive(peer, frames[static_cast<size_t>(peer)], kind, bytes, pending);
  }
  send(others, own, kind, bytes, pending);
  GODWIT_TRY(wait(pending));
  for (int peer = 0; bytes > 0 && peer < size(); ++peer)
    std::memcpy(place(peer), (peer == rank() ? own : frames[static_cast<size_t>(peer)]).payload(bytes).data(), bytes);
  return {};
}

Status Transport::barrier() {
  std::vector<std::byte> all;
  return all_gather(FrameKind::kReply, {}, all);
}

}  // namespace godwit::dist
