#include "server/router.h"

#include <array>
#include <fstream>
#include <future>
#include <latch>

#include <boost/asio/system_executor.hpp>
#include <gtest/gtest.h>

#include "engine/test_engine.h"
#include "server/json_text.h"

namespace godwit::server {
namespace {

class OneReply final : public Reply {
 public:
  void send(Response response) override { sent.push_back(std::move(response)); }
  void begin(Response) override {}
  void write(std::string) override {}
  void end() override {}
  void when_gone(std::function<void()>) override {}
  boost::asio::any_io_executor strand() override { return boost::asio::system_executor(); }
  RequestRecord& record() override { return record_; }

  std::vector<Response> sent;

 private:
  RequestRecord record_;
};

Response get(Router& router, std::string path, Headers headers = {}) {
  auto request = std::make_shared<Request>();
  request->method = "GET";
  request->path = std::move(path);
  request->headers = std::move(headers);
  auto reply = std::make_shared<OneReply>();
  router.identify(*request, *reply);
  router.handle(request, reply);
  EXPECT_EQ(reply->sent.size(), 1u);
  return reply->sent.at(0);
}

std::string header(const Response& response, std::string_view name) {
  for (const auto& [key, value] : response.headers)
    if (key == name) return value;
  return {};
}

// With keys of Ann and Bob.
struct Keyed : testing::Test {
  Keyed() {
    options.key_file = testing::TempDir() + "router_test_keys";
    std::ofstream(options.key_file) << "ann:sk-ann\nbob:sk-bob\n";
    EXPECT_TRUE(router.load_keys().has_value());
  }
  Options options;
  Router router{options};
};

using Page = Keyed;

TEST_F(Page, IsThereWithoutKeyAndBeforeTheModelIs) {
  for (const auto& [path, type, part] :
       std::vector<std::array<std::string, 3>>{{"/", "text/html; charset=utf-8", "<!doctype html>"},
                                               {"/page.css", "text/css; charset=utf-8", "color-scheme"},
                                               {"/page.js", "text/javascript; charset=utf-8", "v1/chat/completions"}}) {
    const Response response = get(router, path);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.content_type, type);
    EXPECT_NE(response.body.find(part), std::string::npos) << path;
    EXPECT_EQ(header(response, "X-Content-Type-Options"), "nosniff");
    EXPECT_TRUE(header(response, "Content-Security-Policy").starts_with("default-src 'none'; "));
  }
  EXPECT_EQ(get(router, "/page.html").status, 404);
  EXPECT_EQ(get(router, "/v1").status, 404);  // not everything below / is the page
}

TEST_F(Page, IsSentOnceToWhoeverKeepsIt) {
  const Response first = get(router, "/page.js");
  const std::string tag = header(first, "ETag");
  EXPECT_EQ(tag.size(), 18u);
  EXPECT_EQ(header(first, "Cache-Control"), "no-cache");
  const Response again = get(router, "/page.js", {{"if-none-match", "W/" + tag}});
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
  EXPECT_EQ(header(again, "ETag"), tag);
  EXPECT_EQ(response_head(again, Framing::kLength, true).find("Content-Length"), std::string::npos);
  EXPECT_EQ(get(router, "/page.css", {{"if-none-match", tag}}).status, 200);
}

TEST_F(Page, AsksNobodyElse) {
  for (const char* path : {"/", "/page.css", "/page.js"}) {
    std::string text = get(router, path).body;
    const std::string_view name = "http://www.w3.org/2000/svg";  // a name, not an address
    if (const size_t at = text.find(name); at != std::string::npos) text.erase(at, name.size());
    EXPECT_EQ(text.find("://"), std::string::npos) << path;
    EXPECT_EQ(text.find("innerHTML"), std::string::npos) << path;
  }
}

using StatusEndpoint = Keyed;

TEST_F(StatusEndpoint, NeedsAKeyAndAModel) {
  EXPECT_EQ(get(router, "/status").status, 401);
  EXPECT_EQ(get(router, "/status", {{"x-api-key", "sk-eve"}}).status, 401);
  EXPECT_EQ(get(router, "/status", {{"x-api-key", "sk-ann"}}).status, 503);
}

TEST_F(StatusEndpoint, ShowsOwnRequestsAndCountsOthers) {
  const Engine engine = engine_test::open();
  auto service = engine_test::value_of(Service::start(engine, {}));
  router.serve(engine, *service);
  std::latch spoke(1), seen(1);
  std::promise<void> over;
  ASSERT_TRUE(service->submit({.prompt = engine_test::prompt(100),
                               .options = engine_test::greedy(1),
                               .principal = "ann",
                               .name = "anns-request"},
                              {[&](const Piece&) {
                                 spoke.count_down();
                                 seen.wait();
                               },
                               [&](const ServiceAnswer&) { over.set_value(); }}));
  spoke.wait();
  const Json ann = Json::parse(get(router, "/status", {{"x-api-key", "sk-ann"}}).body);
  const Response for_bob = get(router, "/status", {{"x-api-key", "sk-bob"}});
  seen.count_down();
  over.get_future().wait();

  ASSERT_EQ(ann["requests"].size(), 1u);
  const Json& own = ann["requests"][0];
  EXPECT_EQ(own["id"], "anns-request");
  EXPECT_EQ(own["state"], "generating");
  EXPECT_EQ(own["prompt_tokens"], 100);
  EXPECT_EQ(own["computed_tokens"], 100);
  EXPECT_EQ(own["completion_tokens"], 1);
  EXPECT_EQ(own["kv_bytes"], ann["kv"]["bytes_in_use"]);
  EXPECT_EQ(ann["others"]["generating"], 0);
  EXPECT_EQ(ann["kv"]["codec"], "f16");
  EXPECT_EQ(ann["kv"]["retained"], 1.0);
  EXPECT_EQ(ann["kv"]["budget_bytes"], engine.info().kv_budget_bytes);
  EXPECT_EQ(ann["prefix_cache"]["blocks"], 1);
  EXPECT_EQ(ann["totals"]["tokens_generated"], 1);

  const Json bob = Json::parse(for_bob.body);
  EXPECT_TRUE(bob["requests"].empty());
  EXPECT_EQ(bob["others"]["generating"], 1);
  EXPECT_EQ(for_bob.body.find("anns-request"), std::string::npos);
  EXPECT_EQ(for_bob.body.find("ann"), std::string::npos);
  const Json later = Json::parse(get(router, "/status", {{"x-api-key", "sk-ann"}}).body);
  EXPECT_TRUE(later["requests"].empty());
}

}  // namespace
}  // namespace godwit::server
