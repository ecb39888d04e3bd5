// What the ranks of a job say to each other about engines: commands of rank 0, in order, and replies.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "dist/transport.h"
#include <godwit/ranks.h>

namespace godwit {

enum class RankVerb : uint32_t {
  kOpen,
  kCreate,
  kFork,
  kCreateFrom,
  kAllow,
  kTruncate,
  kDrop,
  kReserve,
  kAskRoom,
  kShare,
  kStep,
  kUse,
  kReport,
  kPulse,  // rank 0 is there and has nothing to do
  kClose,
  kEnd
};

// Plain data: it travels as it is.
struct RankCommand {
  RankVerb verb = RankVerb::kEnd;
  uint32_t engine = 0;
  uint64_t sequence = 0, other = 0;
  int32_t end = 0;           // position: what is left by a truncation, what is reserved
  int32_t entries = 0;       // of a head, at most
  int32_t degree = 0;        // ranks that are to keep a sequence
  uint32_t parts = 0;        // of a step
  uint32_t phase = 0;        // likewise
  uint32_t extra_bytes = 0;  // that follow: parts and then tokens, options, sequences, rules
};

// Of one sequence in a step.
struct RankPart {
  uint64_t sequence = 0;
  int32_t begin = 0, end = 0;  // positions
  int32_t first_logits = 0;    // row of the part from which logits are wanted
  uint32_t mode = 0;
  uint32_t prompt_ends = 0;
  uint32_t index = 0;  // of the part in the step
};

// One rank's answer to kOpen and to a step that wants memory.
struct RankReply {
  int32_t code = -1;  // of an Error; -1: well
  char text[500] = {};
};

struct Ranks::Impl {
  explicit Impl(std::unique_ptr<dist::Link> link) : transport(std::move(link)) {}

  // Before anything else, on every rank.
  Status join();
  // Rank 0's last word.
  void end();
  // Rank 0 says what to do next ...
  Status tell(const RankCommand& command, std::span<const std::byte> extra = {});
  // ... and the others hear it, whenever that is, as long as rank 0 lives: several times within the timeout it says so.
  Result<RankCommand> hear(std::vector<std::byte>& extra);
  // Everyone's status to everyone: the first that is not well, with its rank's number before it.
  Status agree(const Status& mine);
  // Likewise a text of everyone, all of which must be the same.
  Status agree_on(std::string_view text);

  std::mutex mutex;  // of all below: engines of one job take turns
  dist::Transport transport;
  uint32_t last_engine = 0;

 private:
  void give_pulses(const std::stop_token& stop);

  std::condition_variable_any pulse_;
  std::jthread pulses_;  // of rank 0; last, so that it ends first
};

}  // namespace godwit
