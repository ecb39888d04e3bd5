#include "dist/local_link.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "base/check.h"

namespace godwit::dist {

class LocalNetwork {
 public:
  LocalNetwork(int ranks, LocalFaults faults)
      : size_(ranks),
        faults_(std::move(faults)),
        wires_(static_cast<size_t>(ranks * ranks)),
        left_(static_cast<size_t>(ranks)) {}

  int size() const { return size_; }
  bool outlives_ranks() const { return faults_.outlives_ranks; }

  // What says whether the message is through, and `message` may change.
  std::shared_ptr<const std::atomic<bool>> put(int from, int to, std::span<const std::byte> message) {
    Message sent{message, {}, std::make_shared<std::atomic<bool>>(!faults_.leaves_lying)};
    if (!faults_.leaves_lying) sent.copied.assign(message.begin(), message.end());
    if (faults_.tamper) faults_.tamper(from, to, sent.copied);
    std::shared_ptr<const std::atomic<bool>> through = sent.through;
    std::lock_guard lock(mutex_);
    if (!left_[static_cast<size_t>(from)]) wire(from, to).push_back(std::move(sent));  // else unheard
    return through;
  }
  // The oldest message, or nothing yet; an error when the sender has left and nothing is on the wire.
  Result<std::optional<std::vector<std::byte>>> take(int from, int to) {
    std::lock_guard lock(mutex_);
    auto& queue = wire(from, to);
    if (queue.empty() && left_[static_cast<size_t>(from)]) return errorf(ErrorCode::kIo, "its thread has ended");
    if (queue.empty()) return std::optional<std::vector<std::byte>>();
    Message sent = std::move(queue.front());
    queue.pop_front();
    if (!*sent.through) sent.copied.assign(sent.lying.begin(), sent.lying.end());
    *sent.through = true;
    return std::optional(std::move(sent.copied));
  }
  void polled(size_t expected) const {
    if (faults_.polled) faults_.polled(expected);
  }
  void leave(int rank) {
    std::lock_guard lock(mutex_);
    left_[static_cast<size_t>(rank)] = true;
  }

 private:
  struct Message {
    std::span<const std::byte> lying;
    std::vector<std::byte> copied;
    std::shared_ptr<std::atomic<bool>> through;
  };
  std::deque<Message>& wire(int from, int to) { return wires_[static_cast<size_t>(from * size_ + to)]; }

  const int size_;
  const LocalFaults faults_;
  std::mutex mutex_;
  std::vector<std::deque<Message>> wires_;  // [from, to]
  std::vector<bool> left_;
};

namespace {

class LocalLink final : public Link {
 public:
  LocalLink(std::shared_ptr<LocalNetwork> network, int rank) : network_(std::move(network)), rank_(rank) {}
  ~LocalLink() override { network_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return network_->size(); }
  std::string name() const override { return "local"; }

  Ticket send(int to, std::span<const std::byte> message) override {
    sends_[++last_] = {network_->put(rank_, to, message), message.size()};
    return last_;
  }
  Ticket receive(int from, std::span<std::byte> memory) override {
    receives_[++last_] = {from, memory, {}};
    return last_;
  }
  Result<std::optional<size_t>> done(Ticket ticket) override {
    if (const auto sent = sends_.find(ticket); sent != sends_.end()) {
      if (!*sent->second.through) return std::optional<size_t>();
      const size_t bytes = sent->second.bytes;
      sends_.erase(sent);
      return std::optional<size_t>(bytes);
    }
    const auto at = receives_.find(ticket);
    GODWIT_CHECK(at != receives_.end());
    // Older ones of the same sender come first, whoever asks for them.
    for (auto& [other, receive] : receives_) {
      if (other > ticket || receive.from != at->second.from || receive.arrived) continue;
      GODWIT_ASSIGN(auto message, network_->take(receive.from, rank_));
      if (!message) return std::optional<size_t>();
      if (message->size() > receive.memory.size())
        return errorf(ErrorCode::kBadData, "a message of {} bytes came for {}", message->size(), receive.memory.size());
      std::memcpy(receive.memory.data(), message->data(), message->size());
      receive.arrived = message->size();
    }
    const std::optional<size_t> arrived = at->second.arrived;
    receives_.erase(at);
    return arrived;
  }
  void poll() override {
    network_->polled(static_cast<size_t>(
        std::count_if(receives_.begin(), receives_.end(), [](const auto& one) { return !one.second.arrived; })));
  }
  void give_up() override {}
  void abort(int) override { network_->leave(rank_); }
  bool outlives_ranks() const override { return network_->outlives_ranks(); }

 private:
  struct Send {
    std::shared_ptr<const std::atomic<bool>> through;
    size_t bytes = 0;
  };
  struct Receive {
    int from = 0;
    std::span<std::byte> memory;
    std::optional<size_t> arrived = {};
  };
  std::shared_ptr<LocalNetwork> network_;
  const int rank_;
  Ticket last_ = 0;
  std::map<Ticket, Send> sends_;
  std::map<Ticket, Receive> receives_;
};

}  // namespace

std::vector<std::unique_ptr<Link>> make_local_links(int ranks, LocalFaults faults) {
  auto network = std::make_shared<LocalNetwork>(ranks, std::move(faults));
  std::vector<std::unique_ptr<Link>> links;
  for (int rank = 0; rank < ranks; ++rank) links.push_back(std::make_unique<LocalLink>(network, rank));
  return links;
}

}  // namespace godwit::dist
