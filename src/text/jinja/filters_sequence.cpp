// Filters over whole sequences and dicts.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/unicode.h"

namespace godwit::jinja {
namespace {

Value do_length(Interpreter&, const Value& self, const Args& raw) {
  Arguments args("length", raw, {});
  return Value::of(length_of(self));
}

Value do_list(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("list", raw, {});
  return in.heap().list(in.items_of(self));
}

Value do_first(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("first", raw, {});
  if (self.is(Kind::kSeq) && !self.seq->sized()) {
    Seq& seq = *self.seq;
    return seq.next < seq.items.size() ? seq.items[seq.next++] : in.heap().undefined("first: the sequence was empty");
  }
  std::vector<Value> items = in.items_of(self);
  return items.empty() ? in.heap().undefined("first: the sequence was empty") : items.front();
}

Value do_last(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("last", raw, {});
  if (self.is(Kind::kSeq) && !self.seq->sized()) raise(ErrorCode::kBadData, "last: a generator has no last item");
  std::vector<Value> items = in.items_of(self);
  return items.empty() ? in.heap().undefined("last: the sequence was empty") : items.back();
}

Value do_default(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("default", raw, {"default_value", "boolean"});
  if (self.is(Kind::kUndefined) || (args.flag(1, false) && !truthy(self))) return args.value(0, in.string(""));
  return self;
}

Value do_join(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("join", raw, {"d", "attribute"});
  std::string separator = args.given(0) ? to_str(in.heap(), args[0]) : "", out;
  std::optional<AttributePath> path;
  if (!args.none(1)) path.emplace(in, args[1]);
  bool first = true;
  for (const Value& item : in.items_of(self)) {
    if (!first) out += separator;
    first = false;
    out += to_str(in.heap(), path ? path->of(in, item) : item);
    in.heap().step();
    if (out.size() > in.heap().limits().max_memory_bytes) in.heap().work(out.size());
  }
  return in.string(std::move(out));
}

Value do_reverse(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("reverse", raw, {});
  if (self.is(Kind::kString)) {
    std::string out;
    std::vector<std::string_view> characters = split_characters(self.str());
    in.heap().work(self.str().size());
    for (auto it = characters.rbegin(); it != characters.rend(); ++it) out += *it;
    return in.string(std::move(out), self.markup);
  }
  bool was_generator = self.is(Kind::kSeq) && !self.seq->sized();
  std::vector<Value> items = in.items_of(self);
  std::reverse(items.begin(), items.end());
  return in.heap().seq(was_generator ? Flavor::kList : Flavor::kGenerator, std::move(items));
}

Value do_items(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("items", raw, {});
  std::vector<Value> pairs;
  if (!self.is(Kind::kUndefined)) {
    if (!self.is(Kind::kDict)) raise(ErrorCode::kBadData, "items needs a mapping, not {}", type_name(self));
    for (const auto& [key, value] : self.dict->entries) pairs.push_back(in.heap().tuple({key, value}));
  }
  return in.heap().seq(Flavor::kGenerator, std::move(pairs));
}

// Stable, also when reversed, as Python's sorted.
void sort_by_keys(Interpreter& in, std::vector<Value>& items, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? less(in.heap(), keys[b], keys[a]) : less(in.heap(), keys[a], keys[b]);
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (size_t i : order) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
}

Value do_dictsort(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("dictsort", raw, {"case_sensitive", "by", "reverse"});
  require_defined(self);
  if (!self.is(Kind::kDict)) raise(ErrorCode::kBadData, "dictsort needs a dict, not {}", type_name(self));
  std::string by = args.text(1, "key");
  if (by != "key" && by != "value") raise(ErrorCode::kBadData, "dictsort sorts by 'key' or 'value'");
  std::vector<Value> pairs, keys;
  for (const auto& [key, value] : self.dict->entries) {
    pairs.push_back(in.heap().tuple({key, value}));
    const Value& chosen = by == "key" ? key : value;
    keys.push_back(args.flag(0, false) ? chosen : without_case(in, chosen));
  }
  sort_by_keys(in, pairs, keys, args.flag(2, false));
  return in.heap().list(std::move(pairs));
}

// A list of the attributes to sort by ("age,name"), without case unless asked for.
std::vector<Value> sort_keys(Interpreter& in, const std::vector<Value>& items, const Value& attribute, bool exact) {
  std::vector<AttributePath> paths;
  if (attribute.is(Kind::kString)) {
    std::string_view rest = attribute.str();
    while (true) {
      size_t comma = rest.find(',');
      paths.emplace_back(in, in.string(std::string(rest.substr(0, comma))));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.emplace_back(in, attribute);
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) {
      Value key = path.of(in, item);
      parts.push_back(exact ? key : without_case(in, key));
    }
    keys.push_back(in.heap().list(std::move(parts)));
  }
  return keys;
}

Value do_sort(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("sort", raw, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> items = in.items_of(self);
  std::vector<Value> keys = sort_keys(in, items, args.value(2, Value::none()), args.flag(1, false));
  sort_by_keys(in, items, keys, args.flag(0, false));
  return in.heap().list(std::move(items));
}

Value do_unique(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("unique", raw, {"case_sensitive", "attribute"});
  AttributePath path(in, args.value(1, Value::none()));
  Value seen = in.heap().dict();
  std::vector<Value> kept;
  for (const Value& item : in.items_of(self)) {
    Value key = path.of(in, item);
    if (!args.flag(0, false)) key = without_case(in, key);
    if (in.heap().find(*seen.dict, key) != nullptr) continue;
    in.heap().put(*seen.dict, key, Value::none());
    kept.push_back(item);
  }
  return in.heap().seq(Flavor::kGenerator, std::move(kept));
}

template <bool want_max>
Value do_extreme(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args(want_max ? "max" : "min", raw, {"case_sensitive", "attribute"});
  AttributePath path(in, args.value(1, Value::none()));
  std::vector<Value> items = in.items_of(self);
  if (items.empty()) return in.heap().undefined("min and max: the sequence was empty");
  Value best, best_key;
  for (size_t i = 0; i < items.size(); i++) {
    Value key = path.of(in, items[i]);
    if (!args.flag(0, false)) key = without_case(in, key);
    if (i == 0 || (want_max ? less(in.heap(), best_key, key) : less(in.heap(), key, best_key))) {
      best = items[i];
      best_key = key;
    }
  }
  return best;
}

Value do_sum(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("sum", raw, {"attribute", "start"});
  AttributePath path(in, args.value(0, Value::none()));
  Value total = args.value(1, Value::of(0));
  if (total.is(Kind::kString)) raise(ErrorCode::kBadData, "sum cannot add strings; use join");
  for (const Value& item : in.items_of(self)) total = binary(in.heap(), Op::kAdd, total, path.of(in, item));
  return total;
}

Value do_batch(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("batch", raw, {"linecount", "fill_with"}, 1);
  int64_t size = args.integer(0, 0);
  if (size < 1) raise(ErrorCode::kBadData, "batch needs a positive size");
  std::vector<Value> batches;
  std::vector<Value> items = in.items_of(self);
  for (size_t begin = 0; begin < items.size(); begin += static_cast<size_t>(size)) {
    size_t end = std::min(items.size(), begin + static_cast<size_t>(size));
    std::vector<Value> batch(items.begin() + static_cast<ptrdiff_t>(begin),
                             items.begin() + static_cast<ptrdiff_t>(end));
    if (!args.none(1)) {
      in.heap().work(static_cast<size_t>(size) * sizeof(Value));
      batch.resize(static_cast<size_t>(size), args[1]);
    }
    batches.push_back(in.heap().list(std::move(batch)));
    if (static_cast<int64_t>(items.size()) < size) break;
  }
  return in.heap().seq(Flavor::kGenerator, std::move(batches));
}

Value do_groupby(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("groupby", raw, {"attribute", "default", "case_sensitive"}, 1);
  AttributePath path(in, args[0]);
  bool exact = args.flag(2, false);
  std::vector<Value> items = in.items_of(self), keys;
  auto key_of = [&](const Value& item) {
    Value key = path.of(in, item);
    return key.is(Kind::kUndefined) && !args.none(1) ? args[1] : key;
  };
  for (const Value& item : items) keys.push_back(exact ? key_of(item) : without_case(in, key_of(item)));
  sort_by_keys(in, items, keys, false);
  std::vector<Value> groups;
  Value last_key;
  for (const Value& item : items) {
    Value key = exact ? key_of(item) : without_case(in, key_of(item));
    if (groups.empty() || !same(in.heap(), key, last_key)) {
      groups.push_back(in.heap().seq(Flavor::kGroup, {key_of(item), in.heap().list({})}));
    }
    in.heap().append(*groups.back().seq->items[1].seq, item);
    last_key = key;
  }
  return in.heap().list(std::move(groups));
}

constexpr FilterEntry kFilters[] = {
    {"length", do_length},   {"count", do_length},       {"list", do_list},         {"first", do_first},
    {"last", do_last},       {"default", do_default},    {"d", do_default},         {"join", do_join},
    {"reverse", do_reverse}, {"items", do_items},        {"dictsort", do_dictsort}, {"sort", do_sort},
    {"unique", do_unique},   {"min", do_extreme<false>}, {"max", do_extreme<true>}, {"sum", do_sum},
    {"batch", do_batch},     {"groupby", do_groupby},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  return kFilters;
}

AttributePath::AttributePath(Interpreter& in, const Value& attribute) {
  if (attribute.is(Kind::kNone)) return;
  if (!attribute.is(Kind::kString)) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.str();
  while (true) {
    std::string_view part = rest.substr(0, rest.find('.'));
    bool digits = !part.empty() && part.size() < 10 &&
                  std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    parts_.push_back(digits ? Value::of(std::stoi(std::string(part))) : in.string(std::string(part)));
    if (part.size() == rest.size()) break;
    rest.remove_prefix(part.size() + 1);
  }
}

Value AttributePath::of(Interpreter& in, Value item) const {
  for (const Value& part : parts_) item = in.item(item, part);
  return item;
}

Value without_case(Interpreter& in, const Value& v) {
  return v.is(Kind::kString) ? in.string(to_lower(v.str())) : v;
}

}  // namespace godwit::jinja
