// Filters that apply other filters or tests, given by name, to each item: map, select, reject and their kin.
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/parser.h"

namespace godwit::jinja {
namespace {

// Arguments after the first `used`, for the inner filter or test.
Args remaining(const Args& args, size_t used) {
  Args rest;
  rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(std::min(used, args.positional.size())),
                         args.positional.end());
  rest.named = args.named;
  return rest;
}

const std::string& name_argument(std::string_view what, const Args& args, size_t i) {
  const Value& v = args.positional[i];
  require_defined(v);
  if (!v.is(Kind::kString)) raise(ErrorCode::kBadData, "{} needs a name, not {}", what, type_name(v));
  return v.str();
}

Value nothing(Interpreter& in) {
  return in.heap().seq(Flavor::kGenerator, {});
}

Value do_map(Interpreter& in, const Value& self, const Args& args) {
  if (!truthy(self)) return nothing(in);  // even None
  std::vector<Value> out;
  if (args.positional.empty() && !args.named.empty()) {
    Arguments named("map", args, {"attribute", "default"}, 1);
    AttributePath path(in, named[0]);
    for (const Value& item : in.items_of(self)) {
      Value v = path.of(in, item);
      out.push_back(v.is(Kind::kUndefined) && !named.none(1) ? named[1] : v);
    }
    return in.heap().seq(Flavor::kGenerator, std::move(out));
  }
  if (args.positional.empty()) raise(ErrorCode::kBadData, "map needs a filter name or attribute=");
  const std::string& name = name_argument("map", args, 0);
  FilterFn filter = find_filter(name);
  if (filter == nullptr) raise(ErrorCode::kUnsupported, "there is no filter named '{}'", name);
  Args rest = remaining(args, 1);
  for (const Value& item : in.items_of(self)) {
    in.heap().step();
    out.push_back(filter(in, item, rest));
  }
  return in.heap().seq(Flavor::kGenerator, std::move(out));
}

template <bool by_attribute, bool keep_if>
Value do_select(Interpreter& in, const Value& self, const Args& args) {
  if (!truthy(self)) return nothing(in);
  size_t used = 0;
  Value attribute = Value::none();
  if (by_attribute) {
    if (args.positional.empty()) raise(ErrorCode::kBadData, "selectattr and rejectattr need an attribute name");
    attribute = args.positional[used++];
  }
  AttributePath path(in, attribute);
  TestFn test = nullptr;
  if (used < args.positional.size()) {
    const std::string& name = name_argument("select and reject", args, used++);
    test = find_test(name);
    if (test == nullptr) raise(ErrorCode::kUnsupported, "there is no test named '{}'", name);
  }
  Args rest = remaining(args, used);
  std::vector<Value> kept;
  for (const Value& item : in.items_of(self)) {
    in.heap().step();
    Value v = path.of(in, item);
    bool passes = test != nullptr ? test(in, v, rest) : truthy(v);
    if (passes == keep_if) kept.push_back(item);
  }
  return in.heap().seq(Flavor::kGenerator, std::move(kept));
}

Value do_attr(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("attr", raw, {"name"}, 1);
  // Attributes only, never items: on a dict that leaves its methods.
  if (self.is(Kind::kDict) && find_dict_method(args.text(0)) == nullptr) {
    return in.heap().undefined(fmt::format("'dict object' has no attribute '{}'", args.text(0)));
  }
  return in.attribute(self, args.text(0));
}

constexpr FilterEntry kFilters[] = {
    {"map", do_map},
    {"select", do_select<false, true>},
    {"reject", do_select<false, false>},
    {"selectattr", do_select<true, true>},
    {"rejectattr", do_select<true, false>},
    {"attr", do_attr},
};

}  // namespace

std::span<const FilterEntry> selecting_filters() {
  return kFilters;
}

FilterFn find_filter(std::string_view name) {
  for (auto table : {text_filters(), number_filters(), sequence_filters(), selecting_filters()}) {
    for (const FilterEntry& entry : table) {
      if (entry.name == name) return entry.call;
    }
  }
  return nullptr;
}

}  // namespace godwit::jinja
