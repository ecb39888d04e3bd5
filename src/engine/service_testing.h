// For tests: asks a service and waits for the end.
#pragma once

#include <future>

#include <gtest/gtest.h>

#include "engine/test_engine.h"
#include <godwit/service.h>

namespace godwit::engine_test {

struct Outcome {
  std::vector<TokenId> tokens;
  std::string text;
  ServiceAnswer answer;
};

class Client {
 public:
  explicit Client(Service& service) : service_(service) {}

  std::future<Outcome> ask(ServiceRequest request) {
    auto state = std::make_shared<std::pair<Outcome, std::promise<Outcome>>>();
    std::future<Outcome> future = state->second.get_future();
    auto id = service_.submit(std::move(request),
                              {[state](const Piece& piece) {
                                 state->first.text += piece.text;
                                 state->first.tokens.push_back(piece.id);
                               },
                               [state](const ServiceAnswer& answer) {
                                 state->first.answer = answer;
                                 // Text that was held back comes with the last token once more.
                                 state->first.tokens.resize(static_cast<size_t>(answer.completion_tokens));
                                 state->second.set_value(std::move(state->first));
                               }});
    EXPECT_TRUE(id.has_value()) << id.error().message;
    last_id = id.value_or(0);
    return future;
  }

  uint64_t last_id = 0;

 private:
  Service& service_;
};

inline EngineOptions small_engine(int chunk = 64) {
  EngineOptions options = options_for("qwen3");
  options.prefill_chunk = chunk;
  return options;
}

inline std::unique_ptr<Service> serve(const Engine& engine, const ServiceOptions& options = {}) {
  return value_of(Service::start(engine, options));
}

}  // namespace godwit::engine_test
