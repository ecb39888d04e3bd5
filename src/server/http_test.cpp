// What a client may send, whole or byte by byte, and what is refused.
#include "server/http.h"

#include <gtest/gtest.h>

namespace godwit::server {
namespace {

using State = RequestReader::State;

const Limits kLimits{.header_bytes = 512, .body_bytes = 1000};

State feed(RequestReader& reader, std::string_view text, size_t step) {
  State state = State::kMore;
  for (size_t i = 0; i < text.size(); i += step) {
    state = reader.feed(text.substr(i, step));
    if (state == State::kDone || state == State::kBad) break;
  }
  return state;
}

int status_of(std::string_view text, size_t step = SIZE_MAX) {
  RequestReader reader(kLimits);
  const State state = feed(reader, text, std::min(step, text.size()));
  return state == State::kBad ? reader.error().status : state == State::kDone ? 200 : 0;
}

TEST(RequestReader, ReadsARequestHoweverItArrives) {
  const std::string text = "POST /v1/x?a=b HTTP/1.1\r\nHost: h\r\nX-Api-KEY: secret\r\nContent-Length: 5\r\n\r\nhello";
  for (size_t step : {size_t{1}, size_t{7}, text.size()}) {
    RequestReader reader(kLimits);
    ASSERT_EQ(feed(reader, text, step), State::kDone) << step;
    const Request request = reader.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/x");
    EXPECT_EQ(request.query, "a=b");
    EXPECT_EQ(request.header("x-api-key"), "secret");
    EXPECT_EQ(request.header("absent"), "");
    EXPECT_EQ(request.body, "hello");
    EXPECT_TRUE(request.keep_alive);
  }
}

TEST(RequestReader, ReadsChunks) {
  RequestReader reader(kLimits);
  ASSERT_EQ(
      feed(reader,
           "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", 1),
      State::kDone);
  EXPECT_EQ(reader.take().body, "abcde");
}

TEST(RequestReader, ReadsOneRequestAfterAnother) {
  const std::string one = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", two = "GET /b HTTP/1.0\r\n\r\n";
  RequestReader reader(kLimits);
  EXPECT_TRUE(reader.empty());
  ASSERT_EQ(reader.feed(one + two), State::kDone);
  EXPECT_EQ(reader.take().path, "/a");
  EXPECT_FALSE(reader.empty());
  ASSERT_EQ(reader.next(), State::kDone);
  const Request request = reader.take();
  EXPECT_EQ(request.path, "/b");
  EXPECT_FALSE(request.keep_alive);
  EXPECT_FALSE(request.chunks);
  EXPECT_EQ(reader.next(), State::kMore);
  EXPECT_TRUE(reader.empty());
}

TEST(RequestReader, AsksForTheBodyOnce) {
  RequestReader reader(kLimits);
  EXPECT_EQ(reader.feed("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 4\r\n\r\n"),
            State::kContinue);
  EXPECT_EQ(reader.feed("ab"), State::kMore);
  EXPECT_EQ(reader.feed("cd"), State::kDone);
}

TEST(RequestReader, AdmitsByTheHeadAlone) {
  RequestReader::Admit admit = [](const Request& head) -> std::optional<Response> {
    if (head.header("x-api-key") == "good") return std::nullopt;
    return Response{.status = 401, .body = "no"};
  };
  RequestReader refusing(kLimits, admit), bodiless(kLimits, admit), good(kLimits, admit);
  ASSERT_EQ(refusing.feed("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"), State::kBad);
  EXPECT_EQ(refusing.error().status, 401);
  EXPECT_EQ(bodiless.feed("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), State::kDone);  // nothing is saved there
  EXPECT_EQ(good.feed("POST / HTTP/1.1\r\nHost: h\r\nX-API-Key: good\r\nContent-Length: 1\r\n\r\nx"), State::kDone);
}

struct Refused {
  const char* name;
  std::string text;
  int status;
};

class Refusal : public testing::TestWithParam<Refused> {};

TEST_P(Refusal, IsTheSameHoweverItArrives) {
  EXPECT_EQ(status_of(GetParam().text), GetParam().status);
  EXPECT_EQ(status_of(GetParam().text, 1), GetParam().status);
}

std::string post(const std::string& headers, const std::string& body = {}) {
  return "POST / HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body;
}

INSTANTIATE_TEST_SUITE_P(
    Http, Refusal,
    testing::Values(
        Refused{"garbage", std::string("\x16\x03\x01\x02\x00\x01\xff\xfe", 8) + std::string(300, 'x') + "\r\n\r\n",
                400},
        Refused{"no_target", "GET\r\n\r\n", 400}, Refused{"not_http", "GET / SMTP/1.1\r\n\r\n", 400},
        Refused{"version", "GET / HTTP/3.7\r\nHost: h\r\n\r\n", 400},
        Refused{"absolute_target", "GET http://a/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
        Refused{"no_host", "GET / HTTP/1.1\r\n\r\n", 400},
        Refused{"two_hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
        Refused{"space_before_colon", post("Content-Length : 1\r\n", "x"), 400},
        Refused{"negative_length", post("Content-Length: -1\r\n"), 400},
        Refused{"huge_length", post("Content-Length: 99999999999999999999999\r\n"), 400},
        Refused{"hex_length", post("Content-Length: 0x10\r\n"), 400},
        Refused{"two_lengths", post("Content-Length: 1\r\nContent-Length: 2\r\n", "ab"), 400},
        Refused{"equal_lengths", post("Content-Length: 1\r\nContent-Length: 1\r\n", "a"), 400},
        Refused{"length_and_chunks", post("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
        Refused{"chunks_and_length", post("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", "0\r\n\r\n"), 400},
        Refused{"gzip", post("Transfer-Encoding: gzip\r\n"), 501},
        Refused{"gzip_chunked", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 501},
        Refused{"chunked_gzip", post("Transfer-Encoding: chunked, gzip\r\n"), 501},
        Refused{"two_codings", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
        Refused{"bad_chunk", post("Transfer-Encoding: chunked\r\n", "zz\r\nabc\r\n"), 400},
        Refused{"chunk_past_its_size", post("Transfer-Encoding: chunked\r\n", "2\r\nabcd\r\n0\r\n\r\n"), 400},
        Refused{"endless_chunk_line", post("Transfer-Encoding: chunked\r\n", "1;" + std::string(2000, 'x')), 400},
        Refused{"chunks_in_1_0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        Refused{"expectation", post("Expect: the-unexpected\r\nContent-Length: 1\r\n"), 417},
        Refused{"long_header", post("X: " + std::string(600, 'x') + "\r\n"), 431},
        Refused{"long_target", "GET /" + std::string(600, 'x'), 431},
        Refused{"long_body", post("Content-Length: 1001\r\n"), 413},
        Refused{"long_chunks", post("Transfer-Encoding: chunked\r\n", "3e9\r\n" + std::string(1001, 'x')), 413}),
    [](const auto& row) { return row.param.name; });

TEST(Response, SaysWhereItEnds) {
  const Response response{.status = 200, .body = "{}"};
  EXPECT_NE(response_head(response, Framing::kLength, true).find("Content-Length: 2\r\n"), std::string::npos);
  EXPECT_EQ(response_head(response, Framing::kLength, true).find("Connection"), std::string::npos);
  EXPECT_NE(response_head(response, Framing::kLength, false).find("Connection: close\r\n"), std::string::npos);
  EXPECT_NE(response_head(response, Framing::kChunks, true).find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_NE(response_head(response, Framing::kClose, true).find("Connection: close\r\n"), std::string::npos);
  EXPECT_EQ(chunk("hello, how are you"), "12\r\nhello, how are you\r\n");
}

}  // namespace
}  // namespace godwit::server
