#include "dist/local_link.h"

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

  void put(int from, int to, std::span<const std::byte> message) {
    std::vector<std::byte> copy(message.begin(), message.end());
    if (faults_.tamper) faults_.tamper(from, to, copy);
    std::lock_guard lock(mutex_);
    if (left_[static_cast<size_t>(from)]) return;  // unheard
    wire(from, to).push_back(std::move(copy));
  }
  // The oldest message, or nothing yet; an error when the sender has left and nothing is on the wire.
  Result<std::optional<std::vector<std::byte>>> take(int from, int to) {
    std::lock_guard lock(mutex_);
    auto& queue = wire(from, to);
    if (queue.empty() && left_[static_cast<size_t>(from)]) return errorf(ErrorCode::kIo, "its thread has ended");
    if (queue.empty()) return std::optional<std::vector<std::byte>>();
    std::optional<std::vector<std::byte>> message = std::move(queue.front());
    queue.pop_front();
    return message;
  }
  void leave(int rank) {
    std::lock_guard lock(mutex_);
    left_[static_cast<size_t>(rank)] = true;
  }

 private:
  std::deque<std::vector<std::byte>>& wire(int from, int to) { return wires_[static_cast<size_t>(from * size_ + to)]; }

  const int size_;
  const LocalFaults faults_;
  std::mutex mutex_;
  std::vector<std::deque<std::vector<std::byte>>> wires_;  // [from, to]
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
    network_->put(rank_, to, message);
    return 0;
  }
  Ticket receive(int from, std::span<std::byte> memory) override {
    receives_[++last_] = {from, memory};
    return last_;
  }
  Result<std::optional<size_t>> done(Ticket ticket) override {
    if (ticket == 0) return std::optional<size_t>(0);
    const auto at = receives_.find(ticket);
    GODWIT_CHECK(at != receives_.end());
    for (const auto& [other, receive] : receives_)  // older ones of the same sender come first
      if (other < ticket && receive.from == at->second.from) return std::optional<size_t>();
    GODWIT_ASSIGN(auto message, network_->take(at->second.from, rank_));
    if (!message) return std::optional<size_t>();
    const std::span<std::byte> memory = at->second.memory;
    if (message->size() > memory.size())
      return errorf(ErrorCode::kBadData, "a message of {} bytes came for {}", message->size(), memory.size());
    std::memcpy(memory.data(), message->data(), message->size());
    receives_.erase(at);
    return std::optional<size_t>(message->size());
  }
  void poll() override {}
  void abort() override { network_->leave(rank_); }

 private:
  struct Receive {
    int from = 0;
    std::span<std::byte> memory;
  };
  std::shared_ptr<LocalNetwork> network_;
  const int rank_;
  Ticket last_ = 0;
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
