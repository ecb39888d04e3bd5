// A Service answers many requests at once with one engine: it computes all that generate in one step, reads prompts
// piece by piece between their tokens, and shares what prompts have in common.
//
// An answer is the same tokens that a Session of its own would have given, whatever else goes on. Every limit is hard:
// a full queue refuses, a request that can never fit fails, and nothing else suffers.
//
// Thread-safety: all members from any thread. Callbacks come from the service's own thread, one at a time; they must
// return soon and may call cancel(), nothing else of the service.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <godwit/engine.h>

namespace godwit {

// A KV method, as EngineOptions has it.
struct KvChoice {
  std::string policy = {};   // empty: every entry stays
  std::string budget = {};   // where the policy needs one
  std::string trigger = {};  // prefill, chunk or, of an engine's own, a number of tokens; empty: the policy's own
};

// What requests may choose for themselves.
struct KvAllowance {
  std::vector<std::string> policies = {};  // NAME[:k=v,…], or none; a request says it in full or by its NAME
  std::string least_budget = {},
              largest_budget = {};  // as a KV budget; empty: no limit. Compared over the request's prompt
};

// How many ranks read a sequence's prompt and keep its keys and values, and how many keep them while its answer is
// made.
struct RankDegrees {
  int prefill = 0, decode = 0;
  bool operator==(const RankDegrees&) const = default;
};

struct ServiceOptions {
  int most_running = 32;     // requests that are being answered; the others wait
  int most_waiting = 256;    // more are refused
  bool prefix_cache = true;  // K and V of prompts stay, as long as nobody needs the memory
  KvAllowance kv = {};
  int most_ranks = 0;  // that a request may ask for; 0: requests may not ask
  // Ranks of the engine are lost: all requests have failed, and status() says why. From the service's thread, once.
  std::function<void()> on_lost = {};
  // Likewise, but the job outlives them (mpirun --enable-recovery), and this process goes on alone: requests that had
  // begun do so anew, with what they have said, if its memory suffices. Those that asked for more ranks than one have
  // failed.
  std::function<void(const std::string& why)> on_alone = {};
};

struct ServiceRequest {
  std::vector<TokenId> prompt;
  GenerateOptions options;
  std::string principal;  // who asks: fairness is between principals, and none sees what another's prompts left
  std::string salt = {};  // likewise between requests of one principal whose salts differ
  int priority = 0;       // higher first
  bool embed = false;     // no text: ServiceAnswer::embedding
  std::string name = {};  // what requests() calls it
  std::optional<KvChoice> kv = {};  // within ServiceOptions::kv; none: the engine's
  RankDegrees ranks = {};           // within ServiceOptions::most_ranks; 0: as EngineOptions has it
};

struct ServiceAnswer {
  FinishReason finish = FinishReason::kStop;
  std::string error;  // not empty: it failed, and why
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of them, that were not computed for this request
  int completion_tokens = 0;
  int stop = -1;                      // which of options.stop ended it; -1: none
  double waited_seconds = 0;          // before anything was computed
  std::vector<float> embedding = {};  // mean over the prompt of what the last layer made of each token, of length 1
  RankDegrees ranks = {};             // that did it: of what was computed last; 0: nothing was
};

// A request that is not over.
struct RequestStatus {
  enum class State { kWaiting, kReading, kGenerating };  // to begin or to go on, its prompt, its answer
  uint64_t id = 0;
  std::string name, principal;
  State state = State::kWaiting;
  int prompt_tokens = 0;
  int computed_tokens = 0;  // of them, that are behind it; cached ones too
  int cached_tokens = 0;    // as in ServiceAnswer
  int completion_tokens = 0;
  uint64_t kv_bytes = 0;   // that it holds; what it shares with others counts in full
  KvChoice kv = {};        // its method
  double kv_retained = 1;  // share of its tokens' KV entries that are still there
  double seconds = 0;      // since it was submitted
  RankDegrees ranks = {};  // as in ServiceAnswer
};

struct ServiceCallbacks {
  std::function<void(const Piece&)> on_piece;
  std::function<void(const ServiceAnswer&)> on_end;  // once, and last
  // When more of the prompt is computed, or the KV memory it holds has changed.
  std::function<void(const RequestStatus&)> on_progress = {};
};

struct ServiceStats {
  size_t running = 0, waiting = 0;
  uint64_t answered = 0, failed = 0, cancelled = 0, refused = 0, gave_way = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, steps = 0;
  uint64_t tokens_read = 0, tokens_sampled = 0;  // so far, also by requests that are not over
  size_t prefix_blocks = 0;
  uint64_t prefix_bytes = 0;  // of blocks that the prefix cache knows, whoever else uses them
  size_t prefix_states = 0;   // what KV policies left of prompts
  uint64_t prefix_state_bytes = 0;
  uint64_t kv_bytes_in_use = 0, kv_budget_bytes = 0;
  int ranks = 1;
  std::string lost_ranks = {};  // not empty: why there is one only
};

class Service {
 public:
  // Refuses an engine whose decode method works on one session at a time.
  static Result<std::unique_ptr<Service>> start(const Engine& engine, const ServiceOptions& options);
  ~Service();  // ends every request as cancelled
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // kExhausted: the queue is full. kInvalidArgument: the request can never be answered.
  Result<uint64_t> submit(ServiceRequest request, ServiceCallbacks callbacks);
  // Whether a request of so many tokens may choose this; the error says why not.
  Status check(const KvChoice& choice, size_t prompt_tokens) const;
  // Likewise so many ranks, with that KV method.
  Status check(const RankDegrees& ranks, const std::optional<KvChoice>& kv) const;
  const ServiceOptions& options() const;
  void cancel(uint64_t id);  // on_end follows, soon; unknown ids are ignored
  // Whether requests are still answered; if not, why: a rank of the engine is gone.
  Status status() const;
  ServiceStats stats() const;
  std::vector<RequestStatus> requests() const;  // as they were after the last step, in the order of their ids

 private:
  struct Impl;
  struct Work;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace godwit
