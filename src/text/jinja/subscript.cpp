// Attributes, items and slices of values, and walking over them.
#include <algorithm>
#include <limits>

#include "text/jinja/eval.h"
#include "text/jinja/unicode.h"

namespace godwit::jinja {
namespace {

// A view of the characters of a string that is cheap for ASCII.
Value character(Interpreter& in, const Value& v, size_t index) {
  if (v.text->ascii) return in.string(v.str().substr(index, 1), v.markup);
  in.heap().work(v.str().size());
  return in.string(std::string(split_characters(v.str())[index]), v.markup);
}

std::string object_name(const Value& v) {
  return v.is(Kind::kNone) ? "None" : type_name(v) + " object";
}

// Python's clamping of slice bounds.
void slice_bounds(int64_t length, int64_t step, const Value& start, const Value& stop, int64_t& from, int64_t& to) {
  auto clamp = [&](const Value& v, int64_t otherwise) {
    if (v.is(Kind::kNone)) return otherwise;
    Int i = v.as_int();
    if (i < 0) i += length;
    Int low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    return static_cast<int64_t>(std::clamp(i, low, high));
  };
  from = clamp(start, step < 0 ? length - 1 : 0);
  to = clamp(stop, step < 0 ? -1 : length);
}

}  // namespace

const MethodEntry* Interpreter::method_of(const Value& object, std::string_view name) const {
  switch (object.kind) {
    case Kind::kString:
      return find_string_method(name);
    case Kind::kSeq:
      if (object.seq->flavor != Flavor::kList && !object.seq->is_tuple()) return nullptr;
      return find_list_method(name, object.seq->is_tuple());
    case Kind::kDict:
      return find_dict_method(name);
    case Kind::kLoop:
      return find_loop_method(name);
    default:
      return nullptr;
  }
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  require_defined(object);
  if (const MethodEntry* method = method_of(object, name)) {
    Value v;
    v.kind = Kind::kMethod;
    v.method = heap_.adopt(methods_, BoundMethod{object, method});
    return v;
  }
  switch (object.kind) {
    case Kind::kSeq:
      if (object.seq->flavor == Flavor::kGroup && (name == "grouper" || name == "list")) {
        return object.seq->items[name == "list"];
      }
      break;
    case Kind::kDict:
    case Kind::kNamespace:
      if (const Value* value = heap_.find(*object.dict, name)) return *value;
      break;
    case Kind::kLoop:
      return loop_attribute(*object.loop, name);
    case Kind::kMacro:
      if (name == "name") return string(object.macro->callable->name);
      break;
    default:
      break;
  }
  return heap_.undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), name));
}

Value Interpreter::item(const Value& object, const Value& key) {
  require_defined(object);
  if (object.is(Kind::kDict)) {
    bool hashable = !key.is(Kind::kDict) && !(key.is(Kind::kSeq) && !key.seq->is_tuple());
    if (hashable) {
      if (const Value* value = heap_.find(*object.dict, key)) return *value;
    }
  } else if (key.is_integral() && (object.is(Kind::kString) || (object.is(Kind::kSeq) && object.seq->indexable()))) {
    Int length = static_cast<Int>(length_of(object));
    Int index = key.as_int() < 0 ? key.as_int() + length : key.as_int();
    if (index >= 0 && index < length) {
      size_t i = static_cast<size_t>(index);
      return object.is(Kind::kString) ? character(*this, object, i) : object.seq->items[i];
    }
  }
  if (key.is(Kind::kString)) return attribute(object, key.str());
  return heap_.undefined(fmt::format("{} has no element {}", object_name(object),
                                     key.is(Kind::kUndefined) ? "Undefined" : to_repr(heap_, key)));
}

Value Interpreter::eval_slice(const Value& object, const Expr& slice) {
  require_defined(object);
  Value parts[3];
  for (size_t i = 0; i < 3; i++) {
    parts[i] = slice.args[i] ? eval(*slice.args[i]) : Value::none();
    if (parts[i].is(Kind::kNone)) continue;
    if (!parts[i].is_integral()) raise(ErrorCode::kBadData, "slice indices must be integers or None");
  }
  bool is_text = object.is(Kind::kString);
  if (!is_text && !(object.is(Kind::kSeq) && object.seq->indexable())) {
    raise(ErrorCode::kBadData, "'{}' object cannot be sliced", type_name(object));
  }
  constexpr Int kMost = std::numeric_limits<int32_t>::max();
  Int wide_step = parts[2].is(Kind::kNone) ? 1 : parts[2].as_int();
  if (wide_step == 0) raise(ErrorCode::kBadData, "slice step cannot be zero");
  int64_t step = static_cast<int64_t>(std::clamp(wide_step, -kMost, kMost));
  int64_t length = static_cast<int64_t>(length_of(object)), from, to;
  slice_bounds(length, step, parts[0], parts[1], from, to);
  auto each = [&](auto&& visit) {
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) visit(static_cast<size_t>(i));
  };
  if (!is_text) {
    std::vector<Value> items;
    each([&](size_t i) { items.push_back(object.seq->items[i]); });
    return heap_.seq(object.seq->is_tuple() ? Flavor::kTuple : Flavor::kList, std::move(items));
  }
  heap_.work(object.str().size());
  std::string text;
  if (!object.text->ascii) {
    std::vector<std::string_view> characters = split_characters(object.str());
    each([&](size_t i) { text += characters[i]; });
  } else if (step == 1) {
    text = from < to ? object.str().substr(static_cast<size_t>(from), static_cast<size_t>(to - from)) : "";
  } else {
    each([&](size_t i) { text += object.str()[i]; });
  }
  return string(std::move(text), object.markup);
}

std::vector<Value> Interpreter::items_of(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
      return {};
    case Kind::kString: {
      heap_.work(v.str().size() * sizeof(Value));
      std::vector<Value> items;
      for (std::string_view c : split_characters(v.str())) items.push_back(string(std::string(c)));
      return items;
    }
    case Kind::kDict: {
      std::vector<Value> keys;
      heap_.work(v.dict->entries.size() * sizeof(Value));
      for (const auto& [key, value] : v.dict->entries) keys.push_back(key);
      return keys;
    }
    case Kind::kSeq: {
      Seq& seq = *v.seq;
      heap_.work(seq.items.size() * sizeof(Value));
      if (seq.sized()) return seq.items;
      auto begin = seq.items.begin() + static_cast<ptrdiff_t>(seq.next);
      seq.next = seq.items.size();
      return {begin, seq.items.end()};
    }
    default:
      raise(ErrorCode::kBadData, "'{}' object is not iterable", type_name(v));
  }
}

bool Interpreter::peek_item(Loop& loop) {
  if (loop.ahead_begin < loop.ahead.size()) return true;
  Seq& seq = *loop.source.seq;
  size_t& position = seq.sized() ? loop.position : seq.next;
  loop.ahead.clear();
  loop.ahead_begin = 0;
  while (position < seq.items.size()) {
    Value candidate = seq.items[position++];
    heap_.step();
    if (loop.keep && !loop.keep(candidate)) continue;
    loop.ahead.push_back(std::move(candidate));
    return true;
  }
  return false;
}

bool Interpreter::next_item(Loop& loop, Value& out) {
  if (!peek_item(loop)) return false;
  out = std::move(loop.ahead[loop.ahead_begin++]);
  loop.has_previous = loop.index0 >= 0;
  loop.previous = std::move(loop.current);
  loop.current = out;
  loop.index0++;
  return true;
}

int64_t Interpreter::loop_length(Loop& loop) {
  Seq& seq = *loop.source.seq;
  if (seq.sized() && !loop.keep) return static_cast<int64_t>(seq.items.size());
  size_t& position = seq.sized() ? loop.position : seq.next;
  while (position < seq.items.size()) {
    Value candidate = seq.items[position++];
    heap_.step();
    if (!loop.keep || loop.keep(candidate)) loop.ahead.push_back(std::move(candidate));
  }
  return loop.index0 + 1 + static_cast<int64_t>(loop.ahead.size() - loop.ahead_begin);
}

Value Interpreter::loop_attribute(Loop& loop, std::string_view name) {
  if (name == "index") return Value::of(loop.index0 + 1);
  if (name == "index0") return Value::of(loop.index0);
  if (name == "first") return Value::of(loop.index0 == 0);
  if (name == "last") return Value::of(!peek_item(loop));
  if (name == "length") return Value::of(loop_length(loop));
  if (name == "revindex") return Value::of(loop_length(loop) - loop.index0);
  if (name == "revindex0") return Value::of(loop_length(loop) - loop.index0 - 1);
  if (name == "depth" || name == "depth0") return Value::of(name == "depth" ? 1 : 0);
  if (name == "previtem") return loop.has_previous ? loop.previous : heap_.undefined("there is no previous item");
  if (name == "nextitem") {
    return peek_item(loop) ? loop.ahead[loop.ahead_begin] : heap_.undefined("there is no next item");
  }
  return heap_.undefined(fmt::format("'loop' has no attribute '{}'", name));
}

}  // namespace godwit::jinja
