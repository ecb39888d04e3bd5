#include "eval/load/answer.h"

#include <gtest/gtest.h>

#include "eval/load/http_client.h"

namespace godwit::load {
namespace {

std::vector<std::string> events_of(std::string_view text, size_t piece) {
  SseParser parser;
  std::vector<std::string> events;
  for (size_t at = 0; at < text.size(); at += piece) {
    const Status status = parser.feed(text.substr(at, piece), [&](std::string_view data) {
      events.emplace_back(data);
      return Status();
    });
    EXPECT_TRUE(status);
  }
  return events;
}

TEST(Sse, EveryLineEndAndEveryCut) {
  const std::string text =
      "\xEF\xBB\xBF"
      "data: one\n\n: comment\r\ndata:two\r\ndata: lines\r\n\r\nid: 4\nevent: x\n\ndata\rdata:  s\r\rdata: cut off";
  const std::vector<std::string> wanted = {"one", "two\nlines", "\n s"};
  for (size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(events_of(text, piece), wanted) << piece;
}

TEST(Sse, AnEventWithoutEndIsBounded) {
  for (const char* part : {"aaaaaaaaaaaaaaaa", "data: 0123456789\n", "data:\n"}) {
    SseParser parser(1000);
    Status status;
    int fed = 0;
    while (status && fed < 10000) {
      status = parser.feed(part, [](std::string_view) { return Status(); });
      ++fed;
    }
    ASSERT_FALSE(status) << part;
    EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
  }
}

TEST(Answer, TokensAreTimed) {
  AnswerReader reader(10);
  Histogram gaps;
  auto feed = [&](std::string_view json, double at) {
    return reader.feed("data: " + std::string(json) + "\n\n", at, gaps).value();
  };
  EXPECT_EQ(feed(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", 1), 0);  // no token yet
  EXPECT_EQ(feed(R"({"choices":[{"delta":{"content":"a"}}]})", 2), 1);
  EXPECT_EQ(feed(R"({"choices":[{"text":"b"}]})", 2.5), 1);
  EXPECT_EQ(feed(R"({"choices":[{"delta":{"reasoning_content":"c"},"finish_reason":null}]})", 4), 1);
  EXPECT_FALSE(reader.done());
  EXPECT_EQ(feed(R"({"choices":[{"delta":{},"finish_reason":"length"}]})", 5), 0);
  EXPECT_EQ(feed(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":4,)"
                 R"("prompt_tokens_details":{"cached_tokens":5}}})",
                 5),
            0);
  EXPECT_EQ(feed("[DONE]", 5), 0);
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(reader.first_seconds(), 2);
  EXPECT_EQ(reader.last_seconds(), 4);
  EXPECT_EQ(reader.events(), 3);
  EXPECT_EQ(gaps.count(), 2U);
  EXPECT_EQ(gaps.mean(), 1);
  EXPECT_EQ(reader.usage().prompt_tokens, 7);
  EXPECT_EQ(reader.usage().completion_tokens, 4);
  EXPECT_EQ(reader.usage().cached_tokens, 5);
}

TEST(Answer, HostileEventsAreErrorsOrNothing) {
  auto feed = [](const std::string& data) {
    AnswerReader reader(2);
    Histogram gaps;
    return reader.feed("data: " + data + "\n\n", 1, gaps);
  };
  for (const char* bad :
       {"{", "nonsense", "{\"a\":\xff}", R"({"error":{"message":"out of memory"}})", R"({"error":"x"})"})
    EXPECT_FALSE(feed(bad)) << bad;
  EXPECT_FALSE(feed(std::string(100000, '[')));
  for (const char* idle : {"[]", "3", "null", R"({"choices":3})", R"({"choices":[3]})", R"({"choices":[{"delta":[]}]})",
                           R"({"choices":[{"text":5}]})", R"({"usage":5})", R"({"usage":{"prompt_tokens":-1}})",
                           R"({"usage":{"prompt_tokens":1e300,"completion_tokens":18446744073709551615}})"})
    EXPECT_EQ(feed(idle).value(), 0) << idle;
  AnswerReader reader(2);
  Histogram gaps;
  const std::string token = "data: {\"choices\":[{\"text\":\"x\"}]}\n\n";
  EXPECT_EQ(reader.feed(token + token, 1, gaps).value(), 2);
  EXPECT_EQ(reader.feed(token, 1, gaps).error().code, ErrorCode::kExhausted);
}

TEST(Answer, RefusalsAreShortAndPrintable) {
  EXPECT_EQ(error_message(R"({"error":{"message":"no\nsuch\u001b[31m model"}})"), "no?such?[31m model");
  EXPECT_EQ(error_message("<html>"), "<html>");
  EXPECT_EQ(error_message(std::string(5000, 'x')).size(), 200U);
  EXPECT_EQ(error_message(R"({"error":{"code":4}})"), "it does not say why");
}

TEST(Target, Urls) {
  const auto plain = Target::parse("http://127.0.0.1:8080");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host + "|" + plain->port + "|" + plain->base, "127.0.0.1|8080|/v1");
  const auto six = Target::parse("http://[::1]:99/api/v1/");
  ASSERT_TRUE(six);
  EXPECT_EQ(six->host + "|" + six->port + "|" + six->base, "::1|99|/api/v1");
  EXPECT_EQ(Target::parse("http://example/")->port, "80");
  for (const char* bad :
       {"", "example:80", "https://x", "http://", "http://:80", "http://x:", "http://x:y", "http://x:70000",
        "http://[::1", "http://[::1]x", "http://a b", "http://x/\r\nHost: y", "http://u:p@x"})
    EXPECT_FALSE(Target::parse(bad)) << bad;
}

}  // namespace
}  // namespace godwit::load
