// Methods of lists, tuples, dicts and the loop variable.
//
// Lists and dicts can be changed in place, which Hugging Face's sandbox refuses: templates exist that rely on it
// elsewhere, and a template that the sandbox accepts never notices. The values are the render's own copies.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"

namespace godwit::jinja {
namespace {

Value list_append(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("append", raw, {"object"}, 1);
  in.heap().append(*self.seq, args[0]);
  return Value::none();
}

Value list_extend(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("extend", raw, {"iterable"}, 1);
  for (Value& item : in.items_of(args[0])) in.heap().append(*self.seq, std::move(item));
  return Value::none();
}

Value list_insert(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("insert", raw, {"index", "object"}, 2);
  auto& items = self.seq->items;
  int64_t length = static_cast<int64_t>(items.size()), at = args.integer(0, 0);
  at = std::clamp<int64_t>(at < 0 ? at + length : at, 0, length);
  in.heap().append(*self.seq, args[1]);
  in.heap().work(items.size() * sizeof(Value));
  std::rotate(items.begin() + at, items.end() - 1, items.end());
  return Value::none();
}

Value list_pop(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("pop", raw, {"index"});
  auto& items = self.seq->items;
  int64_t length = static_cast<int64_t>(items.size()), at = args.integer(0, -1);
  if (at < 0) at += length;
  if (at < 0 || at >= length) raise(ErrorCode::kBadData, "pop: index out of range");
  in.heap().work(items.size() * sizeof(Value));
  Value item = items[static_cast<size_t>(at)];
  items.erase(items.begin() + at);
  return item;
}

Value list_index(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("index", raw, {"value"}, 1);
  const auto& items = self.seq->items;
  for (size_t i = 0; i < items.size(); i++) {
    if (same(in.heap(), items[i], args[0])) return Value::of(i);
  }
  raise(ErrorCode::kBadData, "index: the value is not in the list");
}

Value list_count(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("count", raw, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.seq->items) count += same(in.heap(), item, args[0]);
  return Value::of(count);
}

Value list_copy(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("copy", raw, {});
  return in.heap().list(self.seq->items);
}

Value dict_get(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("get", raw, {"key", "default"}, 1);
  const Value* value = in.heap().find(*self.dict, args[0]);
  return value != nullptr ? *value : args.value(1, Value::none());
}

template <Flavor flavor>
Value dict_view(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("a dict method", raw, {});
  std::vector<Value> items;
  items.reserve(self.dict->entries.size());
  for (const auto& [key, value] : self.dict->entries) {
    if (flavor == Flavor::kDictItems) {
      items.push_back(in.heap().tuple({key, value}));
    } else {
      items.push_back(flavor == Flavor::kDictKeys ? key : value);
    }
  }
  return in.heap().seq(flavor, std::move(items));
}

Value dict_copy(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("copy", raw, {});
  Value copy = in.heap().dict();
  in.heap().reserve(self.dict->entries.size() * 2 * sizeof(Value));
  copy.dict->entries = self.dict->entries;
  return copy;
}

Value dict_update(Interpreter& in, const Value& self, const Args& raw) {
  if (raw.positional.size() > 1) raise(ErrorCode::kBadData, "update takes at most 1 argument");
  for (const Value& other : raw.positional) {
    if (!other.is(Kind::kDict)) raise(ErrorCode::kBadData, "update needs a dict, not {}", type_name(other));
    if (other.dict == self.dict) continue;
    for (const auto& [key, value] : other.dict->entries) in.heap().put(*self.dict, key, value);
  }
  for (const auto& [name, value] : raw.named) in.heap().put(*self.dict, name, value);
  return Value::none();
}

Value dict_pop(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("pop", raw, {"key", "default"}, 1);
  Value* found = in.heap().find(*self.dict, args[0]);
  if (found == nullptr) {
    if (args.given(1)) return args[1];
    raise(ErrorCode::kBadData, "pop: the dict has no key {}", to_repr(in.heap(), args[0]));
  }
  Value value = *found;
  auto& entries = self.dict->entries;
  entries.erase(std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return &e.second == found; }));
  return value;
}

Value dict_setdefault(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("setdefault", raw, {"key", "default"}, 1);
  if (const Value* found = in.heap().find(*self.dict, args[0])) return *found;
  in.heap().put(*self.dict, args[0], args.value(1, Value::none()));
  return args.value(1, Value::none());
}

Value loop_cycle(Interpreter&, const Value& self, const Args& args) {
  if (args.positional.empty()) raise(ErrorCode::kBadData, "loop.cycle needs values");
  return args.positional[static_cast<size_t>(self.loop->index0) % args.positional.size()];
}

Value loop_changed(Interpreter& in, const Value& self, const Args& args) {
  Value key = in.heap().tuple(args.positional);
  Loop& loop = *self.loop;
  bool changed = loop.changed_key.is(Kind::kUndefined) || !same(in.heap(), loop.changed_key, key);
  loop.changed_key = key;
  return Value::of(changed);
}

constexpr MethodEntry kTupleMethods[] = {{"index", list_index}, {"count", list_count}};
constexpr MethodEntry kListMethods[] = {
    {"append", list_append}, {"extend", list_extend}, {"insert", list_insert}, {"pop", list_pop},
    {"index", list_index},   {"count", list_count},   {"copy", list_copy},
};
constexpr MethodEntry kDictMethods[] = {
    {"get", dict_get},
    {"items", dict_view<Flavor::kDictItems>},
    {"keys", dict_view<Flavor::kDictKeys>},
    {"values", dict_view<Flavor::kDictValues>},
    {"copy", dict_copy},
    {"update", dict_update},
    {"pop", dict_pop},
    {"setdefault", dict_setdefault},
};
constexpr MethodEntry kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};

template <size_t N>
const MethodEntry* find_in(const MethodEntry (&table)[N], std::string_view name) {
  auto it = std::find_if(std::begin(table), std::end(table), [&](const auto& m) { return m.name == name; });
  return it == std::end(table) ? nullptr : it;
}

}  // namespace

const MethodEntry* find_list_method(std::string_view name, bool tuple) {
  return tuple ? find_in(kTupleMethods, name) : find_in(kListMethods, name);
}
const MethodEntry* find_dict_method(std::string_view name) {
  return find_in(kDictMethods, name);
}
const MethodEntry* find_loop_method(std::string_view name) {
  return find_in(kLoopMethods, name);
}

}  // namespace godwit::jinja
