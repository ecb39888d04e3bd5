#include "text/jinja/template.h"

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace godwit::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string must_render(std::string_view source, const Json& context = Json::object(), RenderOptions options = {}) {
  auto compiled = Template::parse(source, "test");
  if (!compiled) return "PARSE ERROR " + compiled.error().message;
  auto out = compiled->render(context, options);
  return out ? *out : "ERROR " + out.error().message;
}

Error must_fail(std::string_view source, const Json& context = Json::object(), RenderOptions options = {}) {
  auto compiled = Template::parse(source, "test", options.limits);
  if (!compiled) return compiled.error();
  auto out = compiled->render(context, options);
  EXPECT_FALSE(out) << "rendered: " << (out ? out->substr(0, 200) : "");
  return out ? Error{} : out.error();
}

// Every snippet gives what jinja2 gave, or fails where jinja2 failed.
TEST(Template, SnippetsMatchJinja2) {
  std::ifstream file(GODWIT_TEST_DATA "/templates/snippets.json");
  Json data = Json::parse(file);
  RenderOptions options;
  options.now = CivilTime{2024, 7, 26, 13, 5, 9};
  ASSERT_EQ(data["now"], "2024-07-26T13:05:09");
  ASSERT_GT(data["snippets"].size(), 700u);
  for (const Json& row : data["snippets"]) {
    std::string source = row["template"];
    auto compiled = Template::parse(source, "snippet");
    auto out =
        compiled ? compiled->render(data["context"], options) : Result<std::string>(tl::unexpect, compiled.error());
    if (row.contains("error")) {
      EXPECT_FALSE(out) << source << "\n  should fail but gave " << *out;
    } else if (!out) {
      ADD_FAILURE() << source << "\n  " << out.error().message;
    } else {
      EXPECT_EQ(*out, row["output"].get<std::string>()) << source;
    }
  }
}

TEST(Template, ErrorsNameTemplateLineAndReason) {
  EXPECT_EQ(must_fail("a\nb {{ 1 + }}").message, "chat template test: line 2: expected an expression, found '}}'");
  EXPECT_EQ(must_fail("a\n\n{{ x.y }}").message, "chat template test, line 3: 'x' is undefined");
  Error refused = must_fail("{% if true %}\n{{ raise_exception('no ' ~ 'way') }}{% endif %}");
  EXPECT_EQ(refused.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.message, "chat template test, line 2: the template refuses this conversation: no way");
}

TEST(Template, UnsupportedConstructsAreNamed) {
  struct Row {
    const char* source;
    const char* names;
  };
  const Row rows[] = {
      {"{% for x in [] recursive %}{% endfor %}", "recursive for loops"},
      {"{% include 'a' %}", "{% include %}"},
      {"{% extends 'a' %}", "{% extends %}"},
      {"{% block a %}{% endblock %}", "{% block %}"},
      {"{% import 'a' as b %}", "{% import %}"},
      {"{% autoescape true %}{% endautoescape %}", "{% autoescape %}"},
      {"{{ 1 | pprint }}", "'pprint'"},
      {"{{ 1 is oddish }}", "'oddish'"},
      {"{{ '\\N{DASH}' }}", "\\N{...}"},
      {"{{ '{a.b}'.format(a=1) }}", "{a.b}"},
      {"{{ 'é'.isalpha() }}", "isalpha"},
      {"{{ (-8) ** 0.5 }}", "complex"},
      {"{{ [1] | map('string') }}", "generator"},
  };
  for (const Row& row : rows) {
    Error error = must_fail(row.source);
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << row.source;
    EXPECT_NE(error.message.find(row.names), std::string::npos) << error.message;
  }
}

TEST(Template, ListsAndDictsCanChangeInPlace) {
  EXPECT_EQ(must_render(
                "{% set l = [1] %}{% set _ = l.append(2) %}{% set _ = l.insert(0, 'a') %}{{ l }}{{ l.pop(0) }}{{ l }}"),
            "['a', 1, 2]a[1, 2]");
  EXPECT_EQ(
      must_render("{% set d = {'a': 1} %}{% set _ = d.update(b=2) %}{{ d.pop('a') }}{{ d }}{{ d.setdefault('c', 3) }}"),
      "1{'b': 2}3");
  Json context = {{"xs", Json::array({1})}};
  must_render("{% set _ = xs.append(2) %}", context);
  EXPECT_EQ(context["xs"].size(), 1u);
}

TEST(Template, CyclesEndInAnError) {
  EXPECT_EQ(must_fail("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}").code, ErrorCode::kExhausted);
  EXPECT_EQ(must_fail("{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}").code, ErrorCode::kExhausted);
  EXPECT_EQ(
      must_fail("{% set l = [] %}{% set _ = l.append(l) %}{% set m = [] %}{% set _ = m.append(m) %}{{ l == m }}").code,
      ErrorCode::kExhausted);
}

TEST(Template, DeepValuesEndInAnError) {
  std::string deep = "{% set ns = namespace(t=()) %}{% for i in range(100000) %}{% set ns.t = (ns.t,) %}{% endfor %}";
  for (const char* use : {"{{ {ns.t: 1} }}", "{{ ns.t }}", "{{ ns.t | tojson }}", "{{ ns.t == (ns.t,) }}",
                          "{{ ns.t < (ns.t,) }}", "{{ [ns.t] | unique | list }}"}) {
    EXPECT_EQ(must_fail(deep + use).code, ErrorCode::kExhausted) << use;
  }
}

TEST(Template, StepLimit) {
  RenderOptions options;
  options.limits.max_steps = 10'000;
  std::string nested =
      "{% for a in range(100) %}{% for b in range(100) %}{% for c in range(100) %}x{% endfor %}{% endfor %}{% endfor "
      "%}";
  Error error = must_fail(nested, Json::object(), options);
  EXPECT_EQ(error.code, ErrorCode::kExhausted);
  EXPECT_NE(error.message.find("10000 evaluation steps"), std::string::npos) << error.message;
}

TEST(Template, EmptyNestedLoopsAreStillCounted) {
  std::string source = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(must_fail(source).code, ErrorCode::kExhausted);
}

TEST(Template, OutputAndMemoryLimits) {
  RenderOptions options;
  options.limits.max_output_bytes = 1000;
  EXPECT_EQ(must_fail("{{ 'x' * 1001 }}", Json::object(), options).code, ErrorCode::kExhausted);
  EXPECT_EQ(must_render("{{ ('x' * 1000) | length }}", Json::object(), options), "1000");
  options = {};
  options.limits.max_memory_bytes = 1 << 20;
  const char* growing[] = {
      "{% set ns = namespace(s='x') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
      "{% set n = namespace(s=[1]) %}{% for i in range(40) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s | tojson }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(40) %}{% set ns.s = ns.s | replace('a', ns.s) %}{% endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(40) %}{% set ns.s = ns.s.join(ns.s) %}{% endfor %}",
      "{{ 'x' * 100000000000 }}",
      "{{ [0] * 100000000000 }}",
      "{{ 'x'.ljust(100000000000) }}",
      "{{ 'x' | indent(100000000000, true) }}",
      "{{ '%100000000d' % 1 }}",
      "{{ '{:100000000}'.format(1) }}",
      "{{ [1] | tojson(indent=100000000) }}",
      "{{ [1] | batch(100000000000, 0) | list }}",
      "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.append(i) %}{% endfor %}",
  };
  for (const char* source : growing)
    EXPECT_EQ(must_fail(source, Json::object(), options).code, ErrorCode::kExhausted) << source;
}

TEST(Template, MemoryOfDroppedStringsIsGivenBack) {
  RenderOptions options;
  options.limits.max_memory_bytes = 1 << 20;
  EXPECT_EQ(must_render("{% for i in range(100) %}{% set s = 'x' * 100000 %}{{ s | length }}{% if i < 99 %}{% continue "
                        "%}{% endif %}!{% endfor %}",
                        Json::object(), options)
                .back(),
            '!');
}

TEST(Template, SourceLimits) {
  RenderOptions options;
  options.limits.max_template_bytes = 100;
  EXPECT_EQ(must_fail(std::string(101, 'x'), Json::object(), options).code, ErrorCode::kExhausted);
  auto repeat = [](std::string_view what, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; i++) out += what;
    return out;
  };
  size_t many = 100'000;
  const std::string deep[] = {
      "{{ " + repeat("(", many) + "1" + repeat(")", many) + " }}",
      "{{ " + repeat("[", many) + repeat("]", many) + " }}",
      "{{ " + repeat("{1:", many) + "1" + repeat("}", many) + " }}",
      "{{ " + repeat("not ", many) + "1 }}",
      "{{ " + repeat("-", many) + "1 }}",
      "{{ 1" + repeat(" + 1", many) + " }}",
      "{{ 1" + repeat(" | int", many) + " }}",
      "{{ a" + repeat(".b", many) + " }}",
      "{{ a" + repeat("[0]", many) + " }}",
      "{{ a" + repeat("()", many) + " }}",
      "{{ " + repeat("1 if 1 else ", many) + "1 }}",
      "{{ 1" + repeat(" is defined", many) + " }}",
      repeat("{% if 1 %}", many),
      repeat("{% for a in b %}", many),
      repeat("{% macro a() %}", many),
      "{% set " + repeat("(", many) + "a" + repeat(")", many) + " = 1 %}",
  };
  for (const std::string& source : deep) {
    Error error = must_fail(source);
    EXPECT_TRUE(error.code == ErrorCode::kExhausted || error.code == ErrorCode::kBadData) << source.substr(0, 20);
  }
  EXPECT_EQ(must_render("{% if 0 %}" + repeat("{% elif 0 %}", 10'000) + "{% else %}z{% endif %}"), "z");
}

TEST(Template, EndlessRecursionIsAnError) {
  Error error = must_fail("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  EXPECT_EQ(error.code, ErrorCode::kExhausted);
  EXPECT_NE(error.message.find("nested deeper"), std::string::npos) << error.message;
  EXPECT_EQ(must_fail("{% macro a(x) %}{{ b(x ~ 'y') }}{% endmacro %}{% macro b(x) %}{% for i in [1] %}{{ a(x) | trim "
                      "}}{% endfor %}"
                      "{% endmacro %}{{ a('') }}")
                .code,
            ErrorCode::kExhausted);
}

TEST(Template, DeepInputIsAnError) {
  Json deep = 1;
  for (int i = 0; i < 100'000; i++) deep = Json::array({std::move(deep)});
  EXPECT_EQ(must_fail("x", {{"deep", std::move(deep)}}).code, ErrorCode::kExhausted);
}

TEST(Template, WideIntegersAreExactAndOverflowIsAnError) {
  EXPECT_EQ(must_render("{{ n }} {{ n + 1 }} {{ [n] | tojson }}", {{"n", 18446744073709551615u}}),
            "18446744073709551615 18446744073709551616 [18446744073709551615]");
  EXPECT_EQ(must_fail("{{ 10 ** 40 }}").code, ErrorCode::kExhausted);
  EXPECT_EQ(must_fail("{{ 99999999999999999999999999999999999999999999 }}").code, ErrorCode::kBadData);
  EXPECT_EQ(must_fail("{{ range(10 ** 30) }}").code, ErrorCode::kExhausted);
}

TEST(Template, BrokenUtf8PassesThrough) {
  std::string broken = "a\xff\xc3(\xe4\xb8";
  EXPECT_EQ(must_render("{{ s }}{{ s | length }}{{ s[1] }}", {{"s", broken}}), broken + "6\xff");
}

TEST(Template, TimeComesFromTheCaller) {
  EXPECT_EQ(must_fail("{{ strftime_now('%Y') }}").code, ErrorCode::kInvalidArgument);
  RenderOptions options;
  options.now = CivilTime{2000, 2, 29, 0, 0, 0};
  EXPECT_EQ(must_render("{{ strftime_now('%A %d %b %Y %j %I %p') }}", Json::object(), options),
            "Tuesday 29 Feb 2000 060 12 AM");
  EXPECT_EQ(must_fail("{{ strftime_now('%Q') }}", Json::object(), options).code, ErrorCode::kUnsupported);
}

TEST(Template, RendersAreIndependentAcrossThreads) {
  auto compiled = Template::parse(
      "{% set ns = namespace(t=0) %}{% macro m(x) %}<{{ x }}>{% endmacro %}"
      "{% for x in xs %}{% set ns.t = ns.t + x %}{{ m(x) }}{% endfor %}{{ ns.t }}",
      "shared");
  ASSERT_TRUE(compiled);
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < results.size(); t++) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; i++) {
        Json context = {{"xs", Json::array({t, 1})}};
        results[t] = compiled->render(context).value_or("failed");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t t = 0; t < results.size(); t++) EXPECT_EQ(results[t], fmt::format("<{}><1>{}", t, t + 1));
}

}  // namespace
}  // namespace godwit::jinja
