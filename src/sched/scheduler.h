// Which requests go on in the next step of a model that all of them share.
//
// A step takes every request that generates, one token each, and then pieces of prompts, as many as its budget allows:
// a long prompt never holds up those who wait for their next token for longer than one step (Agrawal et al.,
// Sarathi-Serve, arXiv 2403.02310). The budget is in *cost*, not in tokens: a token costs 1 and a share for all that it
// attends to, so the pieces of a prompt get smaller as it gets longer, and steps stay equally long.
//
// Who is next: higher priority first, then whoever's principal had least so far, then who came first. Waiting raises
// priority, so that nobody waits for ever; a long one that there is no room for is overtaken by shorter ones, but after
// some of them nobody begins before it does. A request whose prompt begins like one that is being read waits for that
// one, and then finds its beginning in the cache.
//
// Memory is asked for step by step. When a request that generates gets none, others give way: lowest priority first, of
// those the one whose work is cheapest to do again. They go back to wait with all their tokens, before others.
//
// No clock, no threads, no model: the caller runs the steps and reports. O(requests) a step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace godwit {

struct SchedOptions {
  size_t most_running = 64;        // requests that hold KV memory
  size_t most_waiting = 256;       // more are refused
  size_t step_tokens = 512;        // of prompts, in one step
  double step_cost = 512;          // of one step; see token_cost
  size_t least_tokens = 16;        // of a prompt, that a step takes whatever those who generate cost
  double attention_tokens = 4096;  // so many tokens attended to cost as much as all else about one
  size_t block_tokens = 64;        // a shared beginning shorter than this is not waited for
  size_t patience = 1000;          // steps of waiting that count as one more priority
  size_t most_overtaken = 32;      // so many may begin before one that there is no room for
};

struct SchedRequest {
  uint64_t id = 0;
  std::string principal;
  int priority = 0;
  std::shared_ptr<const std::vector<int32_t>> prompt;  // not empty
  std::string space = {};       // requests of one space may share beginnings of their prompts, ...
  size_t shareable = SIZE_MAX;  // ... this one so many tokens at most
  // 0: a prompt may be cut anywhere. Else it is read in pieces that end at multiples of this, none of them cut, and
  // tokens that were sampled are computed one in a step. At most step_tokens.
  size_t piece_tokens = 0;
  size_t sampled = 0;  // tokens of its answer that there are already
};

// The KV memory, as a scheduler sees it.
class SchedMemory {
 public:
  virtual ~SchedMemory() = default;
  // Tokens of the prompt that need not be computed, if the request began now.
  virtual size_t cached(uint64_t id) const = 0;
  // Whether a request could begin now and have `tokens` tokens with nobody giving way.
  virtual bool fits(uint64_t id, size_t tokens) const = 0;
  // Begins: what is cached becomes the request's. Returns how many tokens that is.
  virtual size_t begin(uint64_t id) = 0;
  // Room for that many more tokens, or false and nothing has changed.
  virtual bool reserve(uint64_t id, size_t tokens) = 0;
  // The request holds nothing any more.
  virtual void release(uint64_t id) = 0;
};

struct SchedStep {
  struct Chunk {
    uint64_t id = 0;
    size_t begin = 0, tokens = 0;  // of prompt and answer as one text
    bool last = false;             // all are computed then, and the next token can be sampled
  };
  std::vector<uint64_t> decodes;  // each computes its newest token; the next can be sampled then
  std::vector<Chunk> chunks;
  std::vector<uint64_t> began, gave_way;
  std::vector<uint64_t> failed;  // no memory even for it alone; they are gone
  double cost = 0;

  bool empty() const { return decodes.empty() && chunks.empty(); }
};

class Scheduler {
 public:
  explicit Scheduler(const SchedOptions& options) : options_(options) {}

  bool submit(SchedRequest request);  // false: too many wait
  // What to compute now; empty when there is nothing to do. The caller computes all of it, then reports.
  SchedStep next(SchedMemory& memory);
  // The request sampled one more token, which is to be computed next.
  void sampled(uint64_t id);
  // What a running request was to have in the last step cannot be had: it goes back to wait with all its tokens, or, if
  // it ran alone, false. REQUIRES: it has not sampled since.
  bool postpone(uint64_t id, SchedMemory& memory);
  // Done or no longer wanted, at any time between steps. Unknown ids are ignored.
  void remove(uint64_t id, SchedMemory& memory);

  size_t waiting() const { return waiting_; }
  size_t running() const { return requests_.size() - waiting_; }
  double token_cost(double before) const { return 1 + before / options_.attention_tokens; }

 private:
  struct Request {
    SchedRequest request;
    uint64_t order = 0;    // of arrival
    uint64_t since = 0;    // the step in which it began to wait
    size_t tokens = 0;     // prompt and answer so far
    size_t computed = 0;   // of them
    size_t overtaken = 0;  // by others that began while there was no room for this one
    bool runs = false;
    bool in_step = false;

    bool decodes() const { return runs && computed + 1 == tokens && tokens > request.prompt->size(); }
  };

  double chunk_cost(size_t begin, size_t tokens) const;
  size_t chunk_tokens(const Request& r, size_t left, double budget, bool first) const;
  int64_t priority(const Request& r) const;
  bool before(const Request& a, const Request& b) const;
  bool waits_for_another(const Request& r, const SchedMemory& memory) const;
  bool make_room(Request& r, size_t tokens, SchedMemory& memory, SchedStep& step);
  Request* who_gives_way(const Request& r);
  void stop(Request& r, SchedMemory& memory);
  void give_way(Request& r, SchedMemory& memory, SchedStep& step);
  void take_decodes(SchedMemory& memory, SchedStep& step);
  void take_chunks(SchedMemory& memory, SchedStep& step);
  bool start(Request& r, std::vector<Request*>& before, SchedMemory& memory, SchedStep& step);
  void serve(const Request& r, double cost);

  SchedOptions options_;
  std::map<uint64_t, Request> requests_;
  std::map<std::string, double> served_;  // cost, by principal that has requests
  size_t waiting_ = 0;
  uint64_t arrivals_ = 0, steps_ = 0;
};

}  // namespace godwit
