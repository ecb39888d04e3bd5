// Settings of an engine and of a generation: plain data with defaults that work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace godwit {

using TokenId = int32_t;

class Ranks;

// How an engine works over several ranks; see ranks.h.
struct RankOptions {
  std::string ring = "auto";  // what travels: "pass-kv", "pass-q", or per step what is predicted to be quicker
  // How many ranks read a prompt together and keep its keys and values; 0: as many as are predicted to be quickest. And
  // how many keep them while an answer is made, which may have them moved; 0: those that read the prompt.
  int prefill_ranks = 0, decode_ranks = 0;
  bool overlap = true;       // keys and values travel while others are attended to
  bool exact = true;         // answers have the bits of one rank; else less travels where queries do
  bool balance = true;       // ranks that were slower so far compute less of a prompt; else all compute equally much
  bool share_memory = true;  // ranks on one host read each other's keys and values where they lie
  bool steal = true;         // and who is ahead there computes rows of attention for who is behind
  double timeout_s = 60;     // the longest wait for another rank within a step
  // Slows every rank's link down to this, to see what another network would do, and shares no memory; 0: as it is.
  double link_latency_s = 0, link_bytes_per_second = 0;
};

// Names of methods are written NAME[:key=value,…]; `godwit methods` lists them.
struct EngineOptions {
  std::string model;             // a GGUF file or a Hugging Face folder; empty: the model built into the library
  int threads = 0;               // 0: one for each fast core this process may use; never more than can run at once
  std::string simd;              // "": the best of the machine; "reference": the slow, plain kernels
  int context_tokens = 0;        // longest sequence; 0: the model's own, or what fits into memory
  uint64_t kv_budget_bytes = 0;  // hard limit of all KV memory; 0: derived from the machine's memory
  int prefill_chunk = 512;       // tokens of a prompt that run at once
  std::string kv_codec = "f16";
  std::string kv_policy;   // which entries of the KV cache stay; empty: all
  std::string kv_budget;   // how many: tokens ("4096"), a share ("25%") or memory ("64MiB"), [:split=head|layer|all]
  std::string kv_trigger;  // when the rest is dropped: "prefill", "chunk", or every so many tokens; empty: the policy's
  std::string prefill = "dense";                         // planner of attention over the prompt
  std::string decode = "dense";                          // planner of attention per generated token
  std::string chat_template;                             // Jinja source; empty: the model's own
  std::string chat_template_name = "the chat template";  // what errors in that source call it
  bool profile = false;                                  // EngineInfo tells where the time goes
  // Weights stay as the file has them, in memory that processes share, instead of being laid out anew for products; so
  // do those of ranks that share a machine. The same results, slower.
  bool map_weights = false;
  std::function<void(double share)> on_load;  // progress of loading, from 0 to 1
  std::shared_ptr<Ranks> ranks;               // null: this process alone
  RankOptions rank_options;
};

struct SamplingOptions {
  float temperature = 0.0F;         // 0 is greedy
  int top_k = 0;                    // keep the k most likely; 0 keeps all
  float top_p = 1.0F;               // keep the smallest set with this probability mass; 1 keeps all
  float min_p = 0.0F;               // drop tokens less likely than min_p times the most likely; 0 keeps all
  float repetition_penalty = 1.0F;  // divides positive and multiplies negative logits of seen tokens
  float presence_penalty = 0.0F;    // subtracted once from every seen token
  float frequency_penalty = 0.0F;   // subtracted once per occurrence
  int penalty_window = 64;          // how many last tokens count as seen; -1 is the whole history
  std::vector<std::pair<TokenId, float>> logit_bias;  // added; -infinity bans a token
  uint64_t seed = 0;
  int logprobs = -1;   // report the chosen token's log-probability and those of this many likeliest; -1: none
  int min_tokens = 0;  // before this many sampled tokens, none of `end_tokens` is chosen
  std::vector<TokenId> end_tokens;
};

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
};

// What an answer must be, compiled for one engine, which makes it (Engine::json_schema and others). Sharing one between
// requests is what makes it fast.
class Constraint;

struct GenerateOptions {
  int max_tokens = -1;  // -1: until the context is full
  SamplingOptions sampling;
  std::vector<std::string> stop;     // text that ends the generation and is not part of the answer
  std::vector<TokenId> stop_tokens;  // likewise, beside the model's own end tokens
  bool ignore_eos = false;           // the model's own end tokens do not end it
  bool keep_special = false;         // special tokens are part of the text, as calls of tools want it
  // Null: anything. Else only tokens that go on towards such an answer have a probability, log-probabilities are those
  // among them, and the answer ends where it is complete, by itself (kStop); end tokens come only where it may end.
  // When something else ends it (max_tokens, stop text, the context), it is the beginning of such an answer.
  std::shared_ptr<const Constraint> constraint;
};

}  // namespace godwit
