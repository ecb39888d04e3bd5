// The values a template computes with: Python's None, bool, int, float, str, list, tuple, dict and a few runtime
// objects.
//
// Strings are immutable and reference-counted; everything that can hold other values lives in the render's Heap and is
// pointed to, so cycles are harmless and nothing is destroyed recursively. A Value must not outlive its Heap, except
// constants, which belong to the Ast. Failures inside the module are thrown as Failure and caught at its border.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "text/jinja/template.h"

namespace godwit::jinja {

__extension__ typedef __int128 Int;  // wide enough for every JSON integer; arithmetic past it is an error

struct Failure {
  ErrorCode code;
  std::string message;
};

template <class... Args>
[[noreturn]] void raise(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{code, fmt::format(format, std::forward<Args>(args)...)};
}

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kSeq,
  kDict,
  kNamespace,
  kMacro,
  kFunction,
  kMethod,
  kLoop,
};

// What a Seq is to Python. Generators can be walked once and have no length.
enum class Flavor : uint8_t { kList, kTuple, kGenerator, kRange, kDictKeys, kDictValues, kDictItems, kGroup };

struct Text {
  explicit Text(std::string s, size_t* meter = nullptr);
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  const std::string bytes;
  const bool ascii;
  size_t* const live;  // the Heap's count of live bytes; null for constants
};
using TextPtr = std::shared_ptr<const Text>;

struct Seq;
struct Dict;
struct Macro;
struct Builtin;
struct BoundMethod;
struct Loop;

struct Value {
  Kind kind = Kind::kUndefined;
  bool markup = false;  // a string marked safe: joining it with plain text escapes that text
  union {
    Int integer = 0;
    bool boolean;
    double real;
    Seq* seq;
    Dict* dict;  // also the attributes of a namespace
    const Macro* macro;
    const Builtin* function;
    const BoundMethod* method;
    Loop* loop;
  };
  TextPtr text;  // of a string; of an undefined value, why it is undefined

  static Value none();
  static Value of(bool b);
  static Value of(Int i);
  static Value of(int64_t i) { return of(static_cast<Int>(i)); }
  static Value of(size_t i) { return of(static_cast<Int>(i)); }
  static Value of(int i) { return of(static_cast<Int>(i)); }
  static Value of(double d);
  static Value of(TextPtr t, bool markup = false);
  static Value of(Seq* s);
  static Value of(Dict* d, Kind kind = Kind::kDict);
  static Value constant(std::string s) { return of(std::make_shared<const Text>(std::move(s))); }

  bool is(Kind k) const { return kind == k; }
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_number() const { return is_integral() || kind == Kind::kFloat; }
  const std::string& str() const { return text->bytes; }                   // of a string
  Int as_int() const { return is(Kind::kBool) ? Int{boolean} : integer; }  // of an integral
  double as_double() const { return is(Kind::kFloat) ? real : static_cast<double>(as_int()); }
};

struct Seq {
  Flavor flavor = Flavor::kList;
  std::vector<Value> items;
  size_t next = 0;                    // of a generator: the first item not yet taken
  Int start = 0, stop = 0, step = 1;  // of a range, for its repr

  bool sized() const { return flavor != Flavor::kGenerator; }
  bool indexable() const {
    return flavor == Flavor::kList || flavor == Flavor::kTuple || flavor == Flavor::kRange || flavor == Flavor::kGroup;
  }
  bool is_tuple() const { return flavor == Flavor::kTuple || flavor == Flavor::kGroup; }
};

// Insertion-ordered. Lookup is linear: the dicts of templates are small, and the caller's step count covers big ones.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Counts steps and live bytes against the limits and owns every container of one render.
class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const Limits& limits() const { return limits_; }
  void step(int64_t count = 1) {
    if ((steps_ += count) > limits_.max_steps) out_of_steps();
  }
  // Before doing work that touches or makes this many bytes.
  void work(size_t bytes);
  void reserve(size_t bytes);  // accounts for live bytes, or fails

  Value string(std::string s, bool markup = false);
  Value undefined(std::string why);
  Value list(std::vector<Value> items) { return seq(Flavor::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return seq(Flavor::kTuple, std::move(items)); }
  Value seq(Flavor flavor, std::vector<Value> items);
  Value dict();
  void append(Seq& seq, Value value);
  Value* find(Dict& dict, const Value& key);  // null if absent; fails on an unhashable key
  Value* find(Dict& dict, std::string_view key);
  void put(Dict& dict, Value key, Value value);
  void put(Dict& dict, std::string_view key, Value value);

  template <class T>
  T* adopt(std::deque<T>& store, T object) {
    reserve(sizeof(T));
    return &store.emplace_back(std::move(object));
  }

 private:
  [[noreturn]] void out_of_steps() const;

  const Limits limits_;
  int64_t steps_ = 0;
  size_t live_ = 0;
  std::deque<Seq> seqs_;
  std::deque<Dict> dicts_;
};

Value from_json(Heap& heap, const nlohmann::ordered_json& json, int depth = 0);

// Python's view of a value.
bool truthy(const Value& v);
bool same(Heap& heap, const Value& a, const Value& b, int depth = 0);  // ==
bool less(Heap& heap, const Value& a, const Value& b, int depth = 0);  // <; fails on types without an order
bool contains(Heap& heap, const Value& container, const Value& item);
std::string to_str(Heap& heap, const Value& v);
std::string to_repr(Heap& heap, const Value& v);
std::string float_repr(double d);
std::string type_name(const Value& v);
size_t length_of(const Value& v);  // fails if it has none
// Fails with the reason why `v` is undefined, if it is.
void require_defined(const Value& v);

struct JsonStyle {
  bool ascii = false;
  bool pretty = false;
  bool sort_keys = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(Heap& heap, const Value& v, const JsonStyle& style);

}  // namespace godwit::jinja
