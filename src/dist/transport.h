// Messages between the ranks of one job: sealed, checked, counted, and never waited for without end.
//
// Every rank runs the same steps, so both ends of a message know its kind and its size. A message that does not come in
// time, a rank that has ended and a frame that is not what it should be make the transport *fail*: every call from then
// on returns that first error at once. Errors name the rank at the other end.
//
// Links can be shaped, to see what a slower network would do: a message then counts as arrived no earlier than latency
// and rate allow, one message of a sender after the other. Thread-safety: one thread at a time, but status() may be
// asked at any time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "dist/frame.h"
#include "dist/link.h"
#include "dist/whereabouts.h"

namespace godwit::dist {

struct TransportOptions {
  double timeout_s = 60;        // the longest wait for another rank within a step
  double idle_timeouts = 10;    // so many times as long, while this rank may have nothing to do and another may
  double latency_s = 0;         // of a shaped link
  double bytes_per_second = 0;  // 0: not shaped
};

struct Traffic {
  uint64_t messages = 0, bytes = 0;  // sent, without headers
};

class Transport {
 public:
  explicit Transport(std::unique_ptr<Link> link, const TransportOptions& options = {});

  int rank() const { return link_->rank(); }
  int size() const { return link_->size(); }
  std::string link_name() const { return link_->name(); }
  TransportOptions& options() { return options_; }
  Status status() const { return failed_.load(std::memory_order_acquire) ? status_ : Status(); }

  // Agrees on the job's token, and tells who is where; before anything else, on every rank.
  Status join();
  // Fails if a rank of this host has ended; who waits for messages looks by itself.
  Status look_for_ended();
  bool outlives_ranks() const { return link_->outlives_ranks(); }

  // A message under way. Frames live until it was waited for.
  struct Pending {
    Link::Ticket ticket = 0;
    Frame* frame = nullptr;  // of a receive
    int peer = 0;
    FrameKind kind = FrameKind::kHello;
    size_t bytes = 0;
  };
  // Sends the first `bytes` of a frame's payload to each of `peers`.
  void send(std::span<const int> peers, Frame& frame, FrameKind kind, size_t bytes, std::vector<Pending>& pending);
  void receive(int from, Frame& frame, FrameKind kind, size_t bytes, std::vector<Pending>& pending);
  // Until all are through; `pending` is empty then.
  Status wait(std::vector<Pending>& pending);
  // Likewise, while there is nothing to do: this time does not count as waited.
  Status wait_idly(std::vector<Pending>& pending);
  // Until `ready`, which another rank brings about without a message; `late` says what to tell if it has not
  // done so for so many seconds, somewhat fewer than those of the timeout.
  Status wait_until(const std::function<bool()>& ready, const std::function<std::string(double)>& late);
  void poll() {
    if (!failed_) link_->poll();
  }
  // What to do while waiting, a little at a time; false: nothing just now. That is no waiting, then.
  void set_meanwhile(std::function<bool()> work) { meanwhile_ = std::move(work); }

  // Small exchanges. all_gather: everyone's `mine`, all of the same size, by rank.
  Status all_gather(FrameKind kind, std::span<const std::byte> mine, std::vector<std::byte>& all);
  Status barrier();

  const Traffic& traffic(FrameKind kind) const { return traffic_[static_cast<size_t>(kind)]; }
  double waited_s() const { return waited_s_; }          // in wait(), so far
  double waited_cpu_s() const { return waited_cpu_s_; }  // of that, computing: who waits looks often
  // Whatever this rank lacks, the others would wait for it.
  Status fail(Error error);
  // Ends the job everywhere, or this rank's part in it.
  void abort(int code) { link_->abort(code); }
  void give_up() { link_->give_up(); }

 private:
  class Wait;
  Status wait_for(Wait& wait, Pending& pending, double timeout_s);
  Status wait_all(std::vector<Pending>& pending, double timeout_s);
  Status fail_without(int rank);
  int first_ended() const;  // of the other ranks; -1: none, as far as can be seen
  int64_t due_time(size_t bytes, size_t copies);

  std::unique_ptr<Link> link_;
  TransportOptions options_;
  Status status_;  // does not change any more once ...
  std::atomic<bool> failed_ = false;
  uint64_t token_ = 0;
  std::vector<Whereabouts> places_;  // by rank
  int64_t busy_until_ns_ = 0;        // of a shaped link
  std::array<Traffic, kFrameKinds> traffic_{};
  std::function<bool()> meanwhile_;
  double waited_s_ = 0, waited_cpu_s_ = 0;
};

}  // namespace godwit::dist
