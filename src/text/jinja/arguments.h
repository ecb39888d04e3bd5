// Matches the arguments of a call with the parameter names of a built-in, as Python does, and reads them with their
// defaults. Too many, unknown or doubled arguments are errors that name the built-in.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace godwit::jinja {

class Arguments {
 public:
  // The first `required` parameters must be given.
  Arguments(std::string_view what, const Args& args, std::initializer_list<std::string_view> params,
            size_t required = 0);

  bool given(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }  // only if given
  Value value(size_t i, Value otherwise) const {
    if (given(i)) return *values_[i];
    return otherwise;
  }
  bool flag(size_t i, bool otherwise) const { return given(i) ? truthy(*values_[i]) : otherwise; }
  int64_t integer(size_t i, int64_t otherwise) const;
  const std::string& text(size_t i) const;  // given and a string, or an error
  std::string text(size_t i, std::string_view otherwise) const { return given(i) ? text(i) : std::string(otherwise); }
  bool none(size_t i) const { return !given(i) || values_[i]->is(Kind::kNone); }

 private:
  std::string_view what_;
  std::vector<const Value*> values_;
};

}  // namespace godwit::jinja
