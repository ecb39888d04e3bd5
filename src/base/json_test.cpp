#include "base/json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace godwit {
namespace {

using nlohmann::json;

TEST(Json, ParsesWhatTheLibraryParses) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "1.5e3", R"("a\u00e9\ud83d\ude00")", "[]", "{}",
        R"([1,[2,{"x":[]}],"y"])", R"({"a":{"b":[1,2,{"c":null}]},"d":"e","":0})", " \n[ 1 ]\t"}) {
    auto value = parse_json(text, "t");
    ASSERT_TRUE(value) << text << ": " << value.error().message;
    EXPECT_EQ(*value, json::parse(text));
  }
}

TEST(Json, MalformedTextIsOneClearError) {
  struct Case {
    std::string text;
    const char* mention;
  };
  const Case cases[] = {
      {"", "where the text ends"},
      {"{", "where the text ends"},
      {"[1,]", "line 1, column 4, near ']'"},
      {"{\n \"a\": nope\n}", "line 2, column 8"},
      {"{} {}", "near '{}'"},
      {"\"\xff\xfe\"", "not valid JSON"},
      {"\"\\ud800\"", "not valid JSON"},
      {"[1e999]", "out of range"},
      {std::string("{}\0junk", 7), "NUL byte at offset 2"},
      {"// comment\n1", "not valid JSON"},
      {"NaN", "not valid JSON"},
  };
  for (const Case& c : cases) {
    auto value = parse_json(c.text, "config.json");
    ASSERT_FALSE(value) << c.text;
    EXPECT_EQ(value.error().code, ErrorCode::kBadData);
    EXPECT_NE(value.error().message.find("config.json"), std::string::npos) << value.error().message;
    EXPECT_NE(value.error().message.find(c.mention), std::string::npos) << value.error().message;
  }
}

TEST(Json, LimitsHold) {
  JsonLimits limits;
  limits.max_depth = 3;
  EXPECT_TRUE(parse_json("[[[1]]]", "t", limits));
  auto deep = parse_json("[[[[1]]]]", "t", limits);
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().code, ErrorCode::kExhausted);

  auto bomb = parse_json(std::string(10'000'000, '['), "t");
  ASSERT_FALSE(bomb);
  EXPECT_EQ(bomb.error().code, ErrorCode::kExhausted);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_FALSE(parse_json(objects, "t"));

  limits.max_values = 3;
  EXPECT_TRUE(parse_json("[1,[]]", "t", limits));
  for (const char* text : {"[1,2,3]", "[[],[],[]]", R"({"a":{},"b":0,"c":0})"}) {
    auto many = parse_json(text, "t", limits);
    ASSERT_FALSE(many) << text;
    EXPECT_EQ(many.error().code, ErrorCode::kExhausted);
  }

  limits.max_bytes = 4;
  EXPECT_TRUE(parse_json("1234", "t", limits));
  auto big = parse_json("12345", "t", limits);
  ASSERT_FALSE(big);
  EXPECT_EQ(big.error().code, ErrorCode::kExhausted);
}

TEST(Json, EqualKeys) {
  EXPECT_EQ((*parse_json(R"({"a":1,"b":{"a":3},"a":2})", "t")), json::parse(R"({"a":2,"b":{"a":3}})"));
  JsonLimits limits;
  limits.unique_keys = true;
  EXPECT_TRUE(parse_json(R"({"a":1,"b":{"a":3}})", "t", limits));
  auto twice = parse_json(R"({"a":1,"b":{"a":3},"a":2})", "t", limits);
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().message.find("'a' appears twice"), std::string::npos);
}

TEST(JsonObject, TypedAccess) {
  json value = json::parse(R"({"n":7,"x":1.5,"s":"hi","t":true,"none":null,"list":[1,2],"names":["a","b"],
                               "big":18446744073709551615,"inner":{"deep":{"k":"v"}}})");
  auto object = JsonObject::of(value, "config.json");
  ASSERT_TRUE(object);
  EXPECT_EQ(object->get<int64_t>("n").value(), 7);
  EXPECT_EQ(object->get<double>("n").value(), 7.0);
  EXPECT_EQ(object->get<double>("x").value(), 1.5);
  EXPECT_EQ(object->get<std::string>("s").value(), "hi");
  EXPECT_TRUE(object->get<bool>("t").value());
  EXPECT_EQ(object->get<std::vector<int64_t>>("list").value(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(object->get<std::vector<std::string>>("names").value(), (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(object->has("none"));
  EXPECT_FALSE(object->find<std::string>("none").value().has_value());
  EXPECT_EQ(object->get_or<int64_t>("none", 3).value(), 3);
  EXPECT_EQ(object->object("inner")->object("deep")->get<std::string>("k").value(), "v");
  EXPECT_FALSE(object->find_object("absent").value().has_value());
}

TEST(JsonObject, ErrorsNameFileAndKey) {
  json value = json::parse(R"({"n":7,"x":1.5,"big":18446744073709551615,"mixed":["a",1],"inner":{"k":"v"}})");
  auto object = JsonObject::of(value, "config.json").value();
  auto expect = [](const auto& result, ErrorCode code, std::string_view message) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, code);
    EXPECT_EQ(result.error().message, message);
  };
  expect(object.get<bool>("gone"), ErrorCode::kNotFound, "config.json: the key 'gone' is missing");
  expect(object.get<int64_t>("x"), ErrorCode::kBadData, "config.json: the key 'x' should be an integer, but is number");
  expect(object.get<int64_t>("big"), ErrorCode::kBadData,
         "config.json: the key 'big' should be an integer, but is number");
  expect(object.get<std::vector<std::string>>("mixed"), ErrorCode::kBadData,
         "config.json: the key 'mixed' should be an array of strings, but is array");
  expect(object.get_or<bool>("n", true), ErrorCode::kBadData,
         "config.json: the key 'n' should be true or false, but is number");
  expect(object.object("inner")->get<int64_t>("k"), ErrorCode::kBadData,
         "config.json: the key 'inner.k' should be an integer, but is string");
  expect(object.object("n"), ErrorCode::kBadData, "config.json: the key 'n' should be an object, but is number");
  expect(JsonObject::of(json(3), "f"), ErrorCode::kBadData, "f: expected a JSON object, found number");
}

}  // namespace
}  // namespace godwit
