// A JSON schema at its place inside another, and typed access to its keywords with errors that name both. A view: the
// schema and its label must outlive it.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "text/grammar/number.h"

namespace godwit {

class SchemaPlace {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr int64_t kMostCount =
      1'000'000;  // larger counts and lengths are taken for this, and this for no limit

  SchemaPlace(const Json& root, std::string_view label) : json_(&root), label_(label) {}

  const Json& json() const { return *json_; }
  const Json* find(std::string_view keyword) const;
  bool has(std::string_view keyword) const { return find(keyword) != nullptr; }
  SchemaPlace at(std::string_view key) const;  // REQUIRES: it is there
  SchemaPlace at(size_t index) const;
  // Follows "#/a/b" from here.
  Result<SchemaPlace> follow(std::string_view pointer) const;

  tl::unexpected<Error> bad(std::string_view what) const;
  tl::unexpected<Error> unsupported(std::string_view keyword, std::string_view why = "") const;
  // Every keyword besides annotations must be among these.
  Status only(std::initializer_list<std::string_view> known, std::string_view why = "") const;

  Result<std::vector<std::string>> types() const;  // empty: not given
  Result<int64_t> count(std::string_view keyword, int64_t fallback) const;
  Result<std::optional<Decimal>> decimal(std::string_view keyword) const;

 private:
  const Json* json_;
  std::string_view label_;
  std::string pointer_;
};

}  // namespace godwit
