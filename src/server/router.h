// From a request to the endpoint that answers it: who asks, under which id, whether they may; and what the log says
// when it is over. All members from any thread, load_keys() before the others.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "server/api_keys.h"
#include "server/app.h"

namespace godwit::server {

class Router {
 public:
  explicit Router(const Options& options) : options_(options) {}

  Status load_keys();
  void serve(const Engine& engine, Service& service);

  // The answer to a request that need not be read any further.
  std::optional<Response> admit(const Request& head) const;
  // Fills in the record's id and principal.
  void identify(const Request& request, Reply& reply) const;
  // Answers, now or later. Never throws.
  void handle(const RequestPtr& request, const ReplyPtr& reply);
  void over(const RequestRecord& record);

 private:
  ApiResult<void> route(const RequestPtr& request, const ReplyPtr& reply);
  std::shared_ptr<const App> app() const;  // null: still loading
  Response metrics_response() const;

  const Options& options_;
  std::optional<ApiKeys> keys_;
  Metrics metrics_;
  mutable std::mutex mutex_;
  std::shared_ptr<const App> app_;
};

}  // namespace godwit::server
