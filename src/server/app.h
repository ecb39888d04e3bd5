// What every endpoint works with.
#pragma once

#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/reply.h"
#include <godwit/service.h>

namespace godwit::server {

struct App {
  const Engine& engine;
  Service& service;
  const Options& options;
  Metrics& metrics;
  std::vector<std::string> names;  // of the model; the first is the one it calls itself
  int64_t created = 0;             // when it was loaded, seconds since 1970
  EngineInfo info;                 // as it was then
};

struct Call {
  RequestPtr request;
  ReplyPtr reply;
  std::string principal, id;
};

// Runs on a thread that may take its time. Sends its answer by itself; an error is sent for it.
using Endpoint = ApiResult<void> (*)(const App& app, const Call& call);

ApiResult<void> chat_completions(const App& app, const Call& call);
ApiResult<void> completions(const App& app, const Call& call);
ApiResult<void> responses(const App& app, const Call& call);
ApiResult<void> messages(const App& app, const Call& call);
ApiResult<void> count_message_tokens(const App& app, const Call& call);
ApiResult<void> embeddings(const App& app, const Call& call);
ApiResult<void> tokenize(const App& app, const Call& call);
ApiResult<void> detokenize(const App& app, const Call& call);
ApiResult<void> status(const App& app, const Call& call);
ApiResult<void> models(const App& app, const Call& call);
ApiResult<void> model(const App& app, const Call& call);

}  // namespace godwit::server
