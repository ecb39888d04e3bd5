#include "text/jinja/value.h"

#include <limits>

#include "text/jinja/unicode.h"

namespace godwit::jinja {

Text::Text(std::string s, size_t* meter) : bytes(std::move(s)), ascii(is_ascii(bytes)), live(meter) {}

Text::~Text() {
  if (live != nullptr) *live -= bytes.size() + sizeof(Text);
}

Value Value::none() {
  Value v;
  v.kind = Kind::kNone;
  return v;
}

Value Value::of(bool b) {
  Value v;
  v.kind = Kind::kBool;
  v.boolean = b;
  return v;
}

Value Value::of(Int i) {
  Value v;
  v.kind = Kind::kInt;
  v.integer = i;
  return v;
}

Value Value::of(double d) {
  Value v;
  v.kind = Kind::kFloat;
  v.real = d;
  return v;
}

Value Value::of(TextPtr t, bool markup) {
  Value v;
  v.kind = Kind::kString;
  v.markup = markup;
  v.text = std::move(t);
  return v;
}

Value Value::of(Seq* s) {
  Value v;
  v.kind = Kind::kSeq;
  v.seq = s;
  return v;
}

Value Value::of(Dict* d, Kind kind) {
  Value v;
  v.kind = kind;
  v.dict = d;
  return v;
}

void Heap::out_of_steps() const {
  raise(ErrorCode::kExhausted, "the template needs more than {} evaluation steps", limits_.max_steps);
}

void Heap::work(size_t bytes) {
  if (bytes > limits_.max_memory_bytes) {
    raise(ErrorCode::kExhausted, "the template makes a value of {} bytes; the limit is {}", bytes,
          limits_.max_memory_bytes);
  }
  step(static_cast<int64_t>(bytes / 64));
}

void Heap::reserve(size_t bytes) {
  if (bytes > limits_.max_memory_bytes || live_ > limits_.max_memory_bytes - bytes) {
    raise(ErrorCode::kExhausted, "the template needs more than {} bytes of memory", limits_.max_memory_bytes);
  }
  live_ += bytes;
}

Value Heap::string(std::string s, bool markup) {
  work(s.size());
  reserve(s.size() + sizeof(Text));
  return Value::of(std::make_shared<const Text>(std::move(s), &live_), markup);
}

Value Heap::undefined(std::string why) {
  Value v = string(std::move(why));
  v.kind = Kind::kUndefined;
  return v;
}

Value Heap::seq(Flavor flavor, std::vector<Value> items) {
  work(items.size() * sizeof(Value));
  reserve(sizeof(Seq) + items.size() * sizeof(Value));
  Seq& seq = seqs_.emplace_back();
  seq.flavor = flavor;
  seq.items = std::move(items);
  return Value::of(&seq);
}

Value Heap::dict() {
  reserve(sizeof(Dict));
  return Value::of(&dicts_.emplace_back());
}

void Heap::append(Seq& seq, Value value) {
  reserve(sizeof(Value));
  seq.items.push_back(std::move(value));
}

namespace {

void require_hashable(const Value& key, int depth_left) {
  if (!key.is(Kind::kSeq) && !key.is(Kind::kDict)) return;
  bool mutable_kind = key.is(Kind::kDict) || !key.seq->is_tuple();
  if (mutable_kind) raise(ErrorCode::kBadData, "a {} cannot be a dict key", type_name(key));
  if (depth_left == 0) raise(ErrorCode::kExhausted, "a dict key is nested too deep");
  for (const Value& item : key.seq->items) require_hashable(item, depth_left - 1);
}

}  // namespace

Value* Heap::find(Dict& dict, const Value& key) {
  if (key.is(Kind::kString)) return find(dict, key.str());
  require_hashable(key, limits_.max_nesting);
  step(static_cast<int64_t>(dict.entries.size() / 8));
  for (auto& [k, v] : dict.entries) {
    if (same(*this, k, key)) return &v;
  }
  return nullptr;
}

Value* Heap::find(Dict& dict, std::string_view key) {
  step(static_cast<int64_t>(dict.entries.size() / 8));
  for (auto& [k, v] : dict.entries) {
    if (k.is(Kind::kString) && k.str() == key) return &v;
  }
  return nullptr;
}

void Heap::put(Dict& dict, Value key, Value value) {
  if (Value* slot = find(dict, key)) {
    *slot = std::move(value);
    return;
  }
  reserve(2 * sizeof(Value));
  dict.entries.emplace_back(std::move(key), std::move(value));
}

void Heap::put(Dict& dict, std::string_view key, Value value) {
  put(dict, string(std::string(key)), std::move(value));
}

Value from_json(Heap& heap, const nlohmann::ordered_json& json, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > heap.limits().max_nesting) {
    raise(ErrorCode::kExhausted, "the template's input is nested deeper than {}", heap.limits().max_nesting);
  }
  heap.step();
  switch (json.type()) {
    case Type::boolean:
      return Value::of(json.get<bool>());
    case Type::number_integer:
      return Value::of(Int{json.get<int64_t>()});
    case Type::number_unsigned:
      return Value::of(Int{json.get<uint64_t>()});
    case Type::number_float:
      return Value::of(json.get<double>());
    case Type::string:
      return heap.string(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(heap, item, depth + 1));
      return heap.list(std::move(items));
    }
    case Type::object: {
      Value dict = heap.dict();
      for (const auto& [key, item] : json.items()) {
        heap.reserve(2 * sizeof(Value));
        dict.dict->entries.emplace_back(heap.string(key), from_json(heap, item, depth + 1));
      }
      return dict;
    }
    case Type::null:
    case Type::binary:
    case Type::discarded:
      break;
  }
  return Value::none();
}

bool truthy(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return v.boolean;
    case Kind::kInt:
      return v.integer != 0;
    case Kind::kFloat:
      return v.real != 0;
    case Kind::kString:
      return !v.str().empty();
    case Kind::kSeq:
      return !v.seq->sized() || !v.seq->items.empty();
    case Kind::kDict:
      return !v.dict->entries.empty();
    default:
      return true;
  }
}

std::string type_name(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return v.markup ? "Markup" : "str";
    case Kind::kSeq:
      switch (v.seq->flavor) {
        case Flavor::kList:
          return "list";
        case Flavor::kTuple:
        case Flavor::kGroup:
          return "tuple";
        case Flavor::kGenerator:
          return "generator";
        case Flavor::kRange:
          return "range";
        case Flavor::kDictKeys:
          return "dict_keys";
        case Flavor::kDictValues:
          return "dict_values";
        case Flavor::kDictItems:
          return "dict_items";
      }
      break;
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

size_t length_of(const Value& v) {
  if (v.is(Kind::kUndefined)) return 0;
  if (v.is(Kind::kString)) return v.text->ascii ? v.str().size() : count_characters(v.str());
  if (v.is(Kind::kSeq) && v.seq->sized()) return v.seq->items.size();
  if (v.is(Kind::kDict)) return v.dict->entries.size();
  raise(ErrorCode::kBadData, "object of type '{}' has no len()", type_name(v));
}

void require_defined(const Value& v) {
  if (v.is(Kind::kUndefined)) raise(ErrorCode::kBadData, "{}", v.text ? v.str() : "an undefined value is used");
}

}  // namespace godwit::jinja
