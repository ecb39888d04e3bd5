#include <algorithm>
#include <chrono>
#include <cstring>

#include "dist/mpi_link.h"
#include "engine/team.h"
#include <godwit/ranks.h>

namespace godwit {

Result<std::shared_ptr<Ranks>> Ranks::join() {
  if (dist::mpi_size() < 2) return std::shared_ptr<Ranks>();
  const char* thread = std::getenv("GODWIT_PROGRESS_THREAD");
  GODWIT_ASSIGN(auto link, dist::make_mpi_link({.progress_thread = thread != nullptr && *thread == '1'}));
  auto ranks = std::make_shared<Ranks>(std::make_unique<Impl>(std::move(link)));
  GODWIT_TRY(ranks->impl().join());
  return ranks;
}

Ranks::Ranks(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Ranks::~Ranks() {
  if (impl_->transport.rank() == 0) impl_->end();
}

int Ranks::rank() const {
  return impl_->transport.rank();
}
int Ranks::size() const {
  return impl_->transport.size();
}
Status Ranks::status() const {
  return impl_->transport.status();
}
void Ranks::abort(int code) {
  // Rank 0 may be about to notice, too, and then has more to say than this; nor should it miss this one instead.
  const double grace_s = rank() == 0 ? 0 : std::min(15.0, 0.25 * impl_->transport.options().timeout_s);
  std::this_thread::sleep_for(std::chrono::duration<double>(grace_s));
  if (rank() > 0 && impl_->transport.outlives_ranks())
    impl_->transport.give_up();  // the others do without it
  else
    impl_->transport.abort(code);
}

Status Ranks::Impl::join() {
  GODWIT_TRY(transport.join());
  if (transport.rank() == 0) pulses_ = std::jthread([this](const std::stop_token& stop) { give_pulses(stop); });
  return {};
}

void Ranks::Impl::end() {
  pulses_ = {};
  // Who does not answer is not waited for any longer.
  if (tell({.verb = RankVerb::kEnd})) (void)transport.barrier();
}

void Ranks::Impl::give_pulses(const std::stop_token& stop) {
  constexpr double kMostSeconds = 0.25, kPerTimeout = 4;
  std::unique_lock lock(mutex);
  for (;;) {
    const std::chrono::duration<double> pause(std::min(kMostSeconds, transport.options().timeout_s / kPerTimeout));
    pulse_.wait_for(lock, stop, pause, [] { return false; });
    // When the others are at work, so is this rank, and has the mutex.
    if (stop.stop_requested() || !tell({.verb = RankVerb::kPulse}) || !transport.look_for_ended()) return;
  }
}

Status Ranks::Impl::tell(const RankCommand& command, std::span<const std::byte> extra) {
  RankCommand told = command;
  told.extra_bytes = static_cast<uint32_t>(extra.size());
  std::vector<int> others;
  for (int rank = 1; rank < transport.size(); ++rank) others.push_back(rank);
  dist::Frame first(sizeof(told)), second(extra.size());
  std::memcpy(first.payload(sizeof(told)).data(), &told, sizeof(told));
  std::vector<dist::Transport::Pending> pending;
  transport.send(others, first, dist::FrameKind::kCommand, sizeof(told), pending);
  if (!extra.empty()) {
    std::memcpy(second.payload(extra.size()).data(), extra.data(), extra.size());
    transport.send(others, second, dist::FrameKind::kCommand, extra.size(), pending);
  }
  return transport.wait(pending);
}

Result<RankCommand> Ranks::Impl::hear(std::vector<std::byte>& extra) {
  RankCommand command;
  dist::Frame frame(sizeof(command));
  std::vector<dist::Transport::Pending> pending;
  transport.receive(0, frame, dist::FrameKind::kCommand, sizeof(command), pending);
  GODWIT_TRY(transport.wait_idly(pending));
  std::memcpy(&command, frame.payload(sizeof(command)).data(), sizeof(command));
  extra.resize(command.extra_bytes);
  if (extra.empty()) return command;
  transport.receive(0, frame, dist::FrameKind::kCommand, extra.size(), pending);
  GODWIT_TRY(transport.wait(pending));
  std::memcpy(extra.data(), frame.payload(extra.size()).data(), extra.size());
  return command;
}

Status Ranks::Impl::agree(const Status& mine) {
  RankReply reply;
  if (!mine) {
    reply.code = static_cast<int32_t>(mine.error().code);
    std::strncpy(reply.text, mine.error().message.c_str(), sizeof(reply.text) - 1);
  }
  std::vector<std::byte> all;
  GODWIT_TRY(transport.all_gather(dist::FrameKind::kReply, std::as_bytes(std::span(&reply, 1)), all));
  for (int rank = 0; rank < transport.size(); ++rank) {
    std::memcpy(&reply, all.data() + static_cast<size_t>(rank) * sizeof(reply), sizeof(reply));
    if (reply.code < 0) continue;
    if (rank == transport.rank()) return mine;
    return errorf(static_cast<ErrorCode>(reply.code), "rank {}: {}", rank, reply.text);
  }
  return {};
}

Status Ranks::Impl::agree_on(std::string_view text) {
  RankReply reply;
  std::strncpy(reply.text, std::string(text).c_str(), sizeof(reply.text) - 1);
  std::vector<std::byte> all;
  GODWIT_TRY(transport.all_gather(dist::FrameKind::kReply, std::as_bytes(std::span(&reply, 1)), all));
  const std::string first = reinterpret_cast<const RankReply*>(all.data())->text;
  for (int rank = 1; rank < transport.size(); ++rank) {
    std::memcpy(&reply, all.data() + static_cast<size_t>(rank) * sizeof(reply), sizeof(reply));
    if (first != reply.text)
      return errorf(ErrorCode::kInvalidArgument,
                    "rank {} would compute something else ({}) than rank 0 ({}): give all of them the same program and "
                    "model, and --simd a target that all machines have",
                    rank, reply.text, first);
  }
  return {};
}

Status Ranks::follow() {
  Impl& job = *impl_;
  std::map<uint32_t, std::unique_ptr<Engine::Impl>> engines;
  std::vector<std::byte> extra;
  for (;;) {
    GODWIT_ASSIGN(const RankCommand command, job.hear(extra));
    if (command.verb == RankVerb::kEnd) return job.transport.barrier();
    if (command.verb == RankVerb::kPulse) continue;
    if (command.verb == RankVerb::kClose) {
      engines.erase(command.engine);
    } else if (command.verb == RankVerb::kOpen) {
      auto opened = Engine::Impl::open_follower(
          std::string_view(reinterpret_cast<const char*>(extra.data()), extra.size()), job, command.engine);
      // Rank 0 has heard of a refusal and tells its user.
      if (opened)
        engines[command.engine] = std::move(*opened);
      else
        GODWIT_TRY(job.transport.status());
    } else {
      const auto at = engines.find(command.engine);
      if (at == engines.end())
        return errorf(ErrorCode::kBadData, "rank 0 speaks of an engine {} that was never opened", command.engine);
      GODWIT_TRY(at->second->team->obey(command, extra));
    }
  }
}

}  // namespace godwit
