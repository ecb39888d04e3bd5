// The filters, by what they work on. Each file has its own table; find_filter() looks through them.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/interpreter.h"

namespace godwit::jinja {

struct FilterEntry {
  std::string_view name;
  FilterFn call;
};

std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> number_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> selecting_filters();

// Reads `attribute` arguments such as "function.name" or 0 and fetches them from items.
class AttributePath {
 public:
  AttributePath(Interpreter& in, const Value& attribute);
  Value of(Interpreter& in, Value item) const;

 private:
  std::vector<Value> parts_;
};

// Strings in lower case, for comparing without case; everything else as it is.
Value without_case(Interpreter& in, const Value& v);

}  // namespace godwit::jinja
