#include "server/fields.h"

#include <gtest/gtest.h>

namespace godwit::server {
namespace {

using nlohmann::json;

template <class T>
ApiError error_of(const ApiResult<T>& result) {
  EXPECT_FALSE(result.has_value());
  return result ? ApiError{} : result.error();
}

Request with_body(std::string body, std::string type = "application/json; charset=utf-8") {
  Request request;
  request.headers.emplace_back("content-type", std::move(type));
  request.body = std::move(body);
  return request;
}

TEST(Body, IsJsonWithinBounds) {
  EXPECT_EQ(parse_body(with_body(R"({"a":1})")).value()["a"], 1);
  EXPECT_EQ(error_of(parse_body(with_body("{}", "text/plain"))).status, 415);
  EXPECT_EQ(error_of(parse_body(with_body("{", "application/json"))).code, "invalid_json");
  EXPECT_EQ(error_of(parse_body(with_body("{\"a\":\"\xff\"}"))).status, 400);
  EXPECT_EQ(error_of(parse_body(with_body(R"({"a":1e999})"))).status, 400);
  EXPECT_EQ(error_of(parse_body(with_body(std::string(100000, '[')))).status, 400);
  EXPECT_EQ(error_of(parse_body(with_body(""))).status, 400);
}

TEST(Fields, NameWhatIsWrong) {
  const json body = json::parse(
      R"({"t":"x","n":3,"big":18446744073709551615,"f":1.5,"b":true,"ids":[1,2],"bad":[1,-2],"s":["a","b"],"none":null})");
  const Fields fields = Fields::of(body, "messages[2]").value();
  int n = 7;
  float f = 7;
  bool b = false;
  std::string t = "default";
  std::vector<int32_t> ids;
  std::vector<std::string> texts;
  EXPECT_TRUE(fields.read("n", n, 0, 3).has_value());
  EXPECT_EQ(n, 3);
  EXPECT_TRUE(fields.read("none", n, 0, 3) && fields.read("absent", n, 0, 3));
  EXPECT_EQ(n, 3);
  EXPECT_TRUE(fields.read("f", f, 0, 2) && fields.read("b", b) && fields.read("t", t));
  EXPECT_TRUE(f == 1.5F && b && t == "x");
  EXPECT_TRUE(fields.read("n", f, 0, 3).has_value());
  EXPECT_TRUE(fields.read("ids", ids) && ids == std::vector<int32_t>({1, 2}));
  EXPECT_TRUE(fields.read("s", texts) && texts.size() == 2);
  EXPECT_TRUE(fields.read("t", texts) && texts == std::vector<std::string>{"x"});

  EXPECT_EQ(error_of(fields.read("n", n, 4, 9)).param, "messages[2].n");
  EXPECT_NE(error_of(fields.read("n", n, 4, 9)).message.find("from 4 to 9, not 3"), std::string::npos);
  EXPECT_EQ(error_of(fields.read("big", n, 0, 9)).status, 400);
  EXPECT_EQ(error_of(fields.read("f", n, 0, 9)).status, 400);
  EXPECT_EQ(error_of(fields.read("t", b)).param, "messages[2].t");
  EXPECT_EQ(error_of(fields.read("n", t)).param, "messages[2].n");
  EXPECT_EQ(error_of(fields.read("f", f, 0, 1)).status, 400);
  EXPECT_EQ(error_of(fields.read("bad", ids)).status, 400);
  EXPECT_EQ(error_of(fields.read("ids", texts)).status, 400);
  EXPECT_NE(error_of(fields.text("absent")).message.find("missing"), std::string::npos);
  EXPECT_EQ(error_of(fields.array("absent")).param, "messages[2].absent");
  EXPECT_EQ(error_of(Fields::of(body["ids"], "x")).param, "x");
}

TEST(Fields, RefuseOnlyWhatIsAskedFor) {
  const json body = {{"yes", true}, {"no", false}, {"none", json::array()}, {"one", 1}};
  const Fields fields = Fields::of(body).value();
  EXPECT_TRUE(fields.refuse("absent", "") && fields.refuse("no", "") && fields.refuse("none", ""));
  EXPECT_TRUE(fields.refuse("one", "", 1).has_value());
  EXPECT_EQ(error_of(fields.refuse("one", "", 2)).param, "one");
  EXPECT_EQ(error_of(fields.refuse("yes", "because")).message, "'yes': because");
}

TEST(ApiError, HasTheFormOfItsProtocol) {
  const ApiError error{
      .status = 429, .message = "full \xff", .param = "n", .code = "queue_full", .retry_after_seconds = 3};
  const Response openai = to_response(error, ApiStyle::kOpenAi, "id");
  const json inner = json::parse(openai.body)["error"];
  EXPECT_EQ(inner["type"], "rate_limit_error");
  EXPECT_EQ(inner["param"], "n");
  EXPECT_EQ(inner["code"], "queue_full");
  EXPECT_EQ(openai.headers, (Headers{{"Retry-After", "3"}}));
  const json anthropic = json::parse(to_response(error, ApiStyle::kAnthropic, "id").body);
  EXPECT_EQ(anthropic["type"], "error");
  EXPECT_EQ(anthropic["error"]["type"], "rate_limit_error");
  EXPECT_EQ(anthropic["request_id"], "id");
  EXPECT_EQ(style_of("/v1/messages/count_tokens"), ApiStyle::kAnthropic);
  EXPECT_EQ(style_of("/v1/models"), ApiStyle::kOpenAi);
}

}  // namespace
}  // namespace godwit::server
