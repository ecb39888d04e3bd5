// What schemas accept and refuse, and what is refused as a schema.
#include "text/grammar/json_schema.h"

#include <ctime>
#include <random>
#include <regex>

#include <fmt/format.h>

#include "text/grammar/test_grammars.h"

namespace godwit {
namespace {

using grammar_test::accepts;
using grammar_test::grammar_of;
using grammar_test::judge;
using grammar_test::Verdict;

struct Case {
  const char* schema;
  std::vector<const char*> good, bad;
};

class SchemaCases : public testing::TestWithParam<Case> {};

TEST_P(SchemaCases, AcceptsAndRefuses) {
  const Grammar grammar = grammar_of(GetParam().schema);
  for (const char* text : GetParam().good) {
    EXPECT_EQ(judge(grammar, text), Verdict::kWhole) << GetParam().schema << "\n" << text;
    for (size_t n = 0; n < std::string_view(text).size(); ++n)
      EXPECT_NE(judge(grammar, std::string_view(text).substr(0, n)), Verdict::kNo) << text << " cut to " << n;
  }
  for (const char* text : GetParam().bad)
    EXPECT_NE(judge(grammar, text), Verdict::kWhole) << GetParam().schema << "\n" << text;
}

const Case kCases[] = {
    {R"({})",
     {"null", "true", "-1.5e+10", R"("a\n\u00e9\ud83d\ude00é😀")", "[]", "{}", R"([1, {"a": [true, null]}, ""])",
      "{\n  \"a\": [\n    1,\n    2\n  ]\n}", R"({"a":1,"a":2})"},
     {"",
      "nul",
      "01",
      "1.",
      ".5",
      "+1",
      "'a'",
      R"("\x")",
      R"("\ud800")",
      R"("\udc00")",
      R"("\ud800\u0041")",
      "[1,]",
      "{,}",
      R"({"a"})",
      R"({1:2})",
      "\"\xff\"",
      "\"\xc0\xaf\"",
      "\"\xed\xa0\x80\"",
      "\"\xf4\x90\x80\x80\"",
      "\"\x01\"",
      "[1] ",
      "NaN",
      "1e999",
      "[1 ,2]",
      "{ \"a\" : 1}",
      "[  1]",
      "\"\n\""}},
    {R"(true)", {"1"}, {}},
    {R"({"type":"object"})", {"{}", R"({"a": 1})", R"( {"a": {}})"}, {"[]", "1", "  {}", R"({"a": 1}})"}},
    {R"({"type":["string","null","boolean"]})", {"null", "\"x\"", "true", "false"}, {"1", "{}", "[]"}},
    {R"({"type":"integer"})", {"0", "-1", "123456789012345678"}, {"-0", "1.0", "1e3", "1234567890123456789", "00"}},
    {R"({"type":"number"})", {"0", "-0.5", "1E5", "2e-07"}, {"1e100", "-", "1.e5"}},
    {R"({"type":"string","nullable":true})", {"null", "\"\""}, {"1"}},
    {R"({"type":"string","minLength":2,"maxLength":3})",
     {R"("ab")", R"("äöü")", R"("\n\u00e9")", R"("😀😀")", R"("\ud83d\ude00\ud83d\ude00a")"},
     {R"("a")", R"("abcd")", R"("")", R"("\ud83d\ude00")"}},
    {R"({"type":"string","minLength":1})", {R"("a")", R"("aaaaaaaaaaaaa")"}, {R"("")"}},
    {R"({"enum":["a","ab",1,null,{"k":[1,"x"]},"q\"\\\n"]})",
     {R"("a")", R"("ab")", "1", "null", R"({"k": [1, "x"]})", R"({"k":[1,"x"]})", R"("q\"\\\n")"},
     {R"("b")", "2", R"({"k":[1]})", R"("abc")"}},
    {R"({"type":"string","enum":["a",1,null]})", {R"("a")"}, {"1", "null"}},
    {R"({"const":{"b":1,"a":2}})", {R"({"b":1,"a":2})"}, {R"({"a":2,"b":1})"}},
    {R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}},"required":["b","a"],
         "additionalProperties":false})",
     {R"({"b":1,"a":"x"})", R"({"b": 1, "a": "x"})", "{\n  \"b\": 1,\n  \"a\": \"x\"\n}", R"({ "b":1,"a":"x" })"},
     {"{}", R"({"b":1})", R"({"a":"x","b":1})", R"({"b":1,"a":"x","c":1})", R"({"b":"1","a":"x"})",
      R"({"b":1,"a":"x",})"}},
    {R"({"type":"object","properties":{"x":{"type":"null"},"y":{"type":"null"},"z":{"type":"null"}},"required":["y"]})",
     {R"({"y":null})", R"({"x":null,"y":null})", R"({"y":null,"z":null})", R"({"x":null,"y":null,"z":null})"},
     {"{}", R"({"x":null})", R"({"x":null,"z":null})", R"({,"y":null})", R"({"y":null,"w":null})"}},
    {R"({"type":"object","properties":{"name":{"type":"null"},"né":{"type":"null"}},
         "additionalProperties":{"type":"integer"}})",
     {R"({})", R"({"name":null,"nam":1})", R"({"names":1,"n":2,"":3})", R"({"né":null,"nè":4,"m":1})"},
     {R"({"name":1})", R"({"nam":null})", R"({"x":1,"name":2})", R"({"né":1})", R"({"n\u0061me":1})"}},
    {R"({"type":"object","required":["a"]})", {R"({"a":[1],"b":2})"}, {"{}", R"({"b":1})"}},
    {R"({"type":"object","required":["a"],"properties":{},"additionalProperties":{"type":"null"}})",
     {R"({"a":null})", R"({"a":null,"c":null})"},
     {R"({"a":1})", "{}"}},
    {R"({"type":"array","items":{"type":"integer"}})",
     {"[]", "[1]", "[1,2, 3]", "[\n\t1\n]"},
     {"[1,]", "[\"a\"]", "1"}},
    {R"({"type":"array","items":{"type":"null"},"minItems":2,"maxItems":3})",
     {"[null,null]", "[null,null,null]"},
     {"[]", "[null]", "[null,null,null,null]"}},
    {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
    {R"({"type":"array","minItems":1})", {"[1]", "[1,2]"}, {"[]"}},
    {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})",
     {"[]", "[1]", R"([1,"a"])"},
     {R"(["a"])", R"([1,"a",2])"}},
    {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},"minItems":2})",
     {"[1,null]", "[1,null,null]"},
     {"[1]", "[null,null]"}},
    {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"}})",
     {"[1,null]", "[]"},
     {"[1,1]"}},
    {R"({"anyOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},
                  {"type":"object","properties":{"k":{"const":"b"},"w":{"type":"string"}},"required":["k","w"]}]})",
     {R"({"k":"a","v":1})", R"({"k": "b", "w": "x"})"},
     {R"({"k":"a","w":"x"})", R"({"k":"b","v":1})"}},
    {R"({"oneOf":[{"type":"integer"},{"type":"null"}]})", {"1", "null"}, {"true"}},
    {R"({"allOf":[{"type":"integer"}],"description":"pydantic"})", {"1"}, {"\"\""}},
    {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},
         "kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v","kids"]}}})",
     {R"({"v":1,"kids":[]})", R"({"v":1,"kids":[{"v":2,"kids":[{"v":3,"kids":[]}]},{"v":4,"kids":[]}]})"},
     {R"({"v":1,"kids":[1]})", R"({"v":1,"kids":[{"v":2}]})"}},
    {R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"]})",
     {R"({"next":null})", R"({"next":{"next":{"next":null}}})"},
     {R"({"next":{}})"}},
    {R"({"$defs":{"a/b":{"type":"null"},"l":[{"type":"integer"}]},"type":"array","items":{"anyOf":[
         {"$ref":"#/$defs/a~1b"},{"$ref":"#/$defs/l/0"}]}})",
     {"[null,1]"},
     {"[\"\"]"}},
    {R"({"minLength":2})", {"\"ab\""}, {"\"a\"", "1"}},
    {R"({"type":"integer","minimum":-5,"maximum":12})", {"-5", "0", "9", "12", "-1"}, {"-6", "13", "100", "-10"}},
    {R"({"type":"number","exclusiveMinimum":0,"maximum":1.5})",
     {"0.1", "1", "1.5", "1.50", "0.00001"},
     {"0", "0.0", "-1", "1.51", "2", "1e0"}},
    {R"({"type":"number","minimum":-1.25,"exclusiveMaximum":-0.5})",
     {"-1.25", "-1", "-0.51", "-0.500001"},
     {"-0.5", "-1.26", "0", "1", "-0.50"}},
    {R"({"type":"number","multipleOf":0.25})", {"0", "0.25", "-1.5", "12.75", "3"}, {"0.1", "0.255", "1.05"}},
    {R"({"type":"integer","format":"int32"})", {"2147483647", "-2147483648"}, {"2147483648", "-2147483649"}},
    {R"({"type":"string","pattern":"^(a|b)+$"})", {R"("a")", R"("abba")"}, {R"("")", R"("abc")"}},
    {R"({"type":"string","pattern":"\"\\n"})", {R"("x\"\ny")"}, {R"("x\"y")"}},
    {R"({"type":"string","format":"date"})",
     {R"("2024-02-28")", R"("1999-12-31")"},
     {R"("2023-02-30")", R"("2023-13-01")"}},
    {R"({"type":"string","format":"date-time"})", {R"("2024-02-28T23:59:59.5Z")"}, {R"("2024-02-28")"}},
    {R"({"type":"string","format":"uuid"})", {R"("01234567-89ab-cdef-0123-456789abcdef")"}, {R"("0123")"}},
    {R"({"type":"string","format":"ipv4"})", {R"("192.168.0.255")"}, {R"("256.1.1.1")", R"("01.1.1.1")"}},
    {R"({"type":"string","format":"email"})", {R"("a.b+c@x-y.org")"}, {R"("a@b")", R"("@x.org")"}},
};
INSTANTIATE_TEST_SUITE_P(All, SchemaCases, testing::ValuesIn(kCases));

TEST(JsonSchema, NamesWhatItDoesNotSupportAndWhere) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> cases = {
      {R"({"properties":{"a":{"not":{}}}})", {"'not'", "'/properties/a'"}},
      {R"({"items":{"contains":{}}})", {"'contains'", "'/items'"}},
      {R"({"patternProperties":{}})", {"'patternProperties'", "''"}},
      {R"({"type":"array","uniqueItems":true})", {"'uniqueItems'"}},
      {R"({"anyOf":[{"type":"null"}],"required":["a"]})", {"'required'", "beside anyOf"}},
      {R"({"allOf":[{},{}]})", {"'allOf'"}},
      {R"({"$ref":"http://example.org/s"})", {"'$ref'"}},
      {R"({"$ref":"#/$defs/a~1b"})", {"'#/$defs/a~1b'", "nowhere"}},
      {R"({"type":"string","pattern":"(?=a)b"})", {"'pattern'", "(?=a)b"}},
      {R"({"type":"string","pattern":"(a)\\1"})", {"refers back"}},
      {R"({"type":"string","pattern":"a","maxLength":3})", {"'maxLength'", "beside pattern"}},
      {R"({"type":"string","format":"regex"})", {"'format'", "regex"}},
      {R"({"type":"integer","multipleOf":0.5})", {"'multipleOf'"}},
      {R"({"type":"text"})", {"\"text\""}},
      {R"({"type":"string","minLength":-1})", {"minLength"}},
      {R"({"type":"string","minLength":5,"maxLength":4})", {"minLength is above"}},
      {R"({"properties":{"a/b~":{"type":1}}})", {"'/properties/a~1b~0'"}},
      {R"([])", {"an object, true or false"}},
      {R"({"a":)", {"not valid JSON"}},
      // Nothing at all satisfies these.
      {R"(false)", {"nothing satisfies"}},
      {R"({"$ref":"#"})", {"nothing satisfies"}},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", {"nothing satisfies"}},
      {R"({"type":"string","enum":[1]})", {"nothing satisfies"}},
      {R"({"type":"integer","minimum":5,"maximum":4})", {"nothing satisfies"}},
  };
  for (const auto& [schema, words] : cases) {
    const auto grammar = json_schema_grammar(schema);
    ASSERT_FALSE(grammar.has_value()) << schema;
    for (const char* word : words)
      EXPECT_NE(grammar.error().message.find(word), std::string::npos) << schema << "\n" << grammar.error().message;
  }
}

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(JsonSchema, HostileSchemasAreAnErrorSoon) {
  std::string many = R"({"type":"object","properties":{)";
  for (int i = 0; i < 9000; ++i) many += fmt::format("{}\"p{}\":{{}}", i == 0 ? "" : ",", i);
  many += "}}";
  std::string doubling = R"({"$defs":{"d0":{"type":"null"})";
  for (int i = 1; i < 60; ++i)
    doubling += fmt::format(R"(,"d{0}":{{"anyOf":[{{"$ref":"#/$defs/d{1}"}},{{"$ref":"#/$defs/d{1}"}}]}})", i, i - 1);
  doubling += R"(},"$ref":"#/$defs/d59"})";
  const std::vector<std::string> schemas = {
      repeated(R"({"items":)", 100) + "{}" + repeated("}", 100),
      repeated(R"({"items":)", 50) + "{\"minItems\":1}" + repeated("}", 50),
      R"({"type":"string","pattern":"((a{1,100}){1,100}){1,100}"})",
      R"({"type":"string","pattern":"(a|b)*a(a|b){30}$"})",
      R"({"type":"string","pattern":"((a?){1000}){50}$"})",
      R"({"type":"string","pattern":")" + repeated("(", 5000) + R"("})",
      R"({"type":"array","items":{"type":"array","minItems":999999},"minItems":999999})",
      R"({"type":"integer","multipleOf":987,"minimum":3,"maximum":99999999999999})",
      R"({"enum":[")" + std::string(300'000, 'x') + R"("]})",
      R"({"type":"integer","minimum":1e400})",
      many,
      doubling,
  };
  for (const std::string& schema : schemas) {
    const std::clock_t begin = std::clock();  // the processor's time: machines are busy
    const auto grammar = json_schema_grammar(schema);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, 5) << schema.substr(0, 80);
    EXPECT_LT(grammar ? 0 : grammar.error().message.size(), 600U);
  }
}

TEST(JsonSchema, LongStringsAreCountedExactly) {
  for (const int most : {63, 64, 65, 127, 128, 500}) {
    const Grammar grammar = grammar_of(fmt::format(R"({{"type":"string","minLength":70,"maxLength":{}}})", most + 70));
    for (const int length : {69, 70, 71, 127, 128, 129, most + 69, most + 70, most + 71}) {
      const std::string text = '"' + repeated("é", length) + '"';
      EXPECT_EQ(judge(grammar, text) == Verdict::kWhole, length >= 70 && length <= most + 70) << most << " " << length;
    }
  }
  EXPECT_TRUE(accepts(R"({"type":"string","maxLength":100000})", '"' + repeated("x", 50000) + '"'));
  EXPECT_TRUE(accepts(R"({"type":"string","maxLength":10000000})", '"' + repeated("x", 5000) + '"'));
}

TEST(JsonSchema, IntegerBoundsEqualArithmetic) {
  std::mt19937 random(1);
  for (int round = 0; round < 150; ++round) {
    const int64_t a = static_cast<int>(random() % 4001) - 2000, b = a + static_cast<int>(random() % 2500);
    const int64_t m = 1 + static_cast<int>(random() % 12);
    const bool above = random() % 2 == 0, below = random() % 2 == 0;
    const auto schema =
        fmt::format(R"({{"type":"integer","{}":{},"{}":{},"multipleOf":{}}})", above ? "exclusiveMinimum" : "minimum",
                    a, below ? "exclusiveMaximum" : "maximum", b, m);
    const auto grammar = json_schema_grammar(schema);
    for (int64_t v = -2100; v <= 4600; ++v) {
      const bool valid = (above ? v > a : v >= a) && (below ? v < b : v <= b) && v % m == 0;
      const bool accepted = grammar && judge(*grammar, std::to_string(v)) == Verdict::kWhole;
      ASSERT_EQ(accepted, valid) << schema << " " << v;
    }
  }
}

TEST(JsonSchema, PatternsEqualAnotherEngine) {
  const char* patterns[] = {"^abc$",      "b",        "^a",         "c$",      "a|^b|c$",      "^(ab|ba)*$",
                            "^a{2,3}b?$", "^[^a]*$",  "^[a-b]+c*$", "(a.){2}", "^\\w\\W\\d?$", "^(?:a|b{2,})c+?$",
                            "a[\\d-]b",   "^[^\\w]$", "\\.",        "^.?$"};
  std::mt19937 random(2);
  for (const char* pattern : patterns) {
    const Grammar grammar = grammar_of(nlohmann::json({{"type", "string"}, {"pattern", pattern}}).dump());
    const std::regex judge_regex(pattern, std::regex::ECMAScript);
    int matched = 0;
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (size_t n = random() % 7; n > 0; --n) text += "abcab1-. \""[random() % 10];
      const bool expected = std::regex_search(text, judge_regex);
      matched += expected ? 1 : 0;
      ASSERT_EQ(judge(grammar, nlohmann::json(text).dump()) == Verdict::kWhole, expected) << pattern << " " << text;
    }
    EXPECT_GT(matched, 0) << pattern;
  }
}

TEST(JsonSchema, NestingEndsBeforeTheLimitAndNeverInADeadEnd) {
  const Grammar grammar = grammar_of("{}");
  for (const char* open : {"[", "{\"a\":", "[{\"a\":"}) {
    std::string text;
    while (judge(grammar, text + open) != Verdict::kNo) text += open;
    EXPECT_GE(text.size() / std::string_view(open).size(), 14U);
    // Whatever was accepted can be finished.
    std::string close = text.ends_with(":") ? "null" : "";
    for (size_t i = text.size(); i-- > 0;)
      if (text[i] == '[' || text[i] == '{') close += text[i] == '[' ? ']' : '}';
    EXPECT_EQ(judge(grammar, text + close), Verdict::kWhole) << text + close;
  }
}

}  // namespace
}  // namespace godwit
