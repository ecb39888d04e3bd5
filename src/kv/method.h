// Methods as rows of tables, and the one syntax that names them: NAME[:key=value,…].
//
// Codecs, policies, tiers and planners are each one file that exports one row; CMake lists the rows of a folder in a
// generated table (godwit_method_table). Every row type begins with a MethodInfo, so that command line, documentation
// and tests can walk any table. A value holds no comma. Everything here is immutable and safe to share between threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace godwit {

struct MethodParam {
  std::string_view name;
  std::string_view default_value;
  std::string_view help;
};

struct MethodInfo {
  std::string_view name;         // as on the command line
  std::string_view description;  // one line
  std::string_view reference;    // paper or specification
  std::span<const MethodParam> params;
};

// A parsed NAME[:k=v,…]; says nothing about whether such a method exists, and an empty name is one that none has.
struct MethodSpec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> params;  // in the order given; keys are unique
};

Result<MethodSpec> parse_method_spec(std::string_view text);

// The parameters of one method, defaults filled in. The getters convert and check; asking for a parameter that the
// method does not declare is a bug.
class MethodArgs {
 public:
  // An unknown key is an error that lists the known ones. `kind` ("KV codec") names the table in errors.
  static Result<MethodArgs> bind(std::string_view kind, const MethodInfo& info, const MethodSpec& spec);

  Result<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  Result<int64_t> odd_integer(std::string_view key, int64_t min, int64_t max) const;
  Result<double> real(std::string_view key, double min, double max) const;
  Result<bool> flag(std::string_view key) const;  // true/false, on/off, 1/0
  const std::string& text(std::string_view key) const;

 private:
  std::string method_;  // "KV codec 'q4'", for errors
  std::vector<std::pair<std::string, std::string>> values_;
};

// "no KV codec is named 'x'; there are a, b, c".
Error unknown_method(std::string_view kind, std::string_view name, std::span<const std::string_view> known);

template <class Row>
Result<const Row*> find_method(std::string_view kind, std::span<const Row* const> table, std::string_view name) {
  std::vector<std::string_view> known;
  for (const Row* row : table) {
    if (row->info.name == name) return row;
    known.push_back(row->info.name);
  }
  return tl::unexpected(unknown_method(kind, name, known));
}

template <class Row>
struct ChosenMethod {
  const Row* row;
  MethodArgs args;
};

// From what a user wrote to a row and its parameters.
template <class Row>
Result<ChosenMethod<Row>> choose_method(std::string_view kind, std::span<const Row* const> table,
                                        std::string_view text) {
  GODWIT_ASSIGN(MethodSpec spec, parse_method_spec(text));
  GODWIT_ASSIGN(const Row* row, find_method(kind, table, spec.name));
  GODWIT_ASSIGN(MethodArgs args, MethodArgs::bind(kind, row->info, spec));
  return ChosenMethod<Row>{row, std::move(args)};
}

}  // namespace godwit
