// The Jinja that chat templates are written in: parse once, render many times.
//
// Whitespace control follows what model authors test against: a block tag swallows the newline after it and the blanks
// before it on its line (trim_blocks, lstrip_blocks), and one final newline of the source is dropped. Undefined names
// print as nothing and fail when used. Deliberately absent: template inheritance, include and import, recursive loops,
// autoescaping. Anything absent is an error that names it.
//
// A Template is immutable and cheap to copy; render() is const, keeps all its state to itself and may run on several
// threads at once. The same input gives the same bytes on every machine: the only clock is RenderOptions::now.
// Both the source and the context may be hostile: work, memory, nesting and output are bounded by Limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <godwit/status.h>

namespace godwit::jinja {

struct Ast;

struct Limits {
  size_t max_template_bytes = size_t{4} << 20;
  size_t max_output_bytes = size_t{256} << 20;
  size_t max_memory_bytes = size_t{1} << 30;  // strings and containers alive at once
  int64_t max_steps = 20'000'000;             // evaluated nodes; bulk work counts by its bytes
  int64_t max_range = 100'000;                // items of one range()
  int max_nesting = 200;                      // of the source: brackets, blocks
  int max_depth = 1000;                       // of evaluation, macro calls included
};

// What strftime_now() formats; no time zone is implied.
struct CivilTime {
  int year = 1970;
  int month = 1;  // 1..12
  int day = 1;    // 1..31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

struct RenderOptions {
  Limits limits;
  std::optional<CivilTime> now;  // without it, calling strftime_now() is an error
};

class Template {
 public:
  // `label` names the template in every error, e.g. the file it came from.
  static Result<Template> parse(std::string_view source, std::string_view label, const Limits& limits = {});

  // `context` is an object; its members are the template's variables.
  Result<std::string> render(const nlohmann::ordered_json& context, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const Ast> ast) : ast_(std::move(ast)) {}

  std::shared_ptr<const Ast> ast_;
};

}  // namespace godwit::jinja
