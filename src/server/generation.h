// A request's way through the service: its answers are asked for together, and what they say goes to the client in the
// form its protocol has. When the client goes away, all of them end at once.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "server/app.h"
#include "server/fields.h"

namespace godwit::server {

struct Plan {
  std::vector<std::vector<TokenId>> prompts;
  int choices = 1;  // answers to each prompt
  GenerateOptions options;
  std::string salt;  // see ServiceRequest
  int priority = 0;
  std::optional<KvChoice> kv = {};  // see ServiceRequest
  RankDegrees ranks = {};           // likewise
  bool stream = false;
  bool embed = false;     // see ServiceRequest
  bool progress = false;  // the form wants to be told
};

struct Usage {
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  RankDegrees ranks = {};  // of the answer that ended last; 0: there is one rank
};

// What a client reads. Each member returns the bytes to send now: events where the answer is streamed; else nothing
// until end(), which returns the body. Used on one thread at a time; answers are numbered prompt by prompt.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;
  virtual std::string piece(size_t answer, const Piece& piece) = 0;
  virtual std::string progress(size_t /*answer*/, const RequestStatus& /*status*/) { return {}; }
  virtual std::string answer_end(size_t answer, const ServiceAnswer& end) = 0;
  virtual std::string end(const Usage& usage) = 0;
};

// The fields that all protocols share: temperature, top_p, seed, stop, … under the names given there.
struct FieldNames {
  const char* stop = "stop";
  std::vector<const char*> max_tokens = {"max_tokens"};  // the first that is there counts
};
ApiResult<void> read_plan(const App& app, const Fields& fields, const FieldNames& names, Plan& plan);
// Whether the request's model is the one that is served.
ApiResult<void> check_model(const App& app, const Fields& fields);

// Checks the prompts against the limits, then asks the service. REQUIRES: plan.prompts is not empty.
ApiResult<void> generate(const App& app, const Call& call, Plan plan, std::unique_ptr<AnswerForm> form);

}  // namespace godwit::server
