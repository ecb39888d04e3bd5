// Equality, order and membership as Python defines them.
#include <algorithm>

#include "text/jinja/value.h"

namespace godwit::jinja {
namespace {

void check_depth(const Heap& heap, int depth) {
  if (depth > heap.limits().max_nesting) {
    raise(ErrorCode::kExhausted, "a compared value is nested deeper than {}", heap.limits().max_nesting);
  }
}

bool same_dict(Heap& heap, Dict& a, Dict& b, int depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = heap.find(b, key);
    if (other == nullptr || !same(heap, value, *other, depth + 1)) return false;
  }
  return true;
}

bool same_seq(Heap& heap, const Seq& a, const Seq& b, int depth) {
  if (&a == &b) return true;
  bool comparable = (a.is_tuple() && b.is_tuple()) || (a.flavor == b.flavor && a.indexable());
  if (!comparable || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); i++) {
    if (!same(heap, a.items[i], b.items[i], depth + 1)) return false;
  }
  return true;
}

[[noreturn]] void no_order(const Value& a, const Value& b) {
  raise(ErrorCode::kBadData, "'<' not supported between instances of '{}' and '{}'", type_name(a), type_name(b));
}

}  // namespace

bool same(Heap& heap, const Value& a, const Value& b, int depth) {
  check_depth(heap, depth);
  heap.step();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      heap.work(std::min(a.str().size(), b.str().size()));
      return a.str() == b.str();
    case Kind::kSeq:
      return same_seq(heap, *a.seq, *b.seq, depth);
    case Kind::kDict:
      return a.dict == b.dict || same_dict(heap, *a.dict, *b.dict, depth);
    case Kind::kNamespace:
      return a.dict == b.dict;
    case Kind::kMacro:
      return a.macro == b.macro;
    case Kind::kFunction:
      return a.function == b.function;
    case Kind::kMethod:
      return a.method == b.method;
    case Kind::kLoop:
      return a.loop == b.loop;
    default:
      return false;
  }
}

bool less(Heap& heap, const Value& a, const Value& b, int depth) {
  check_depth(heap, depth);
  heap.step();
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    return a.as_double() < b.as_double();
  }
  if (a.is(Kind::kString) && b.is(Kind::kString)) return a.str() < b.str();  // byte order is code point order
  if (!a.is(Kind::kSeq) || !b.is(Kind::kSeq)) no_order(a, b);
  bool lists = a.seq->flavor == Flavor::kList && b.seq->flavor == Flavor::kList;
  if (!lists && !(a.seq->is_tuple() && b.seq->is_tuple())) no_order(a, b);
  const auto &x = a.seq->items, &y = b.seq->items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); i++) {
    if (!same(heap, x[i], y[i], depth + 1)) return less(heap, x[i], y[i], depth + 1);
  }
  return x.size() < y.size();
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.is(Kind::kString)) {
        require_defined(item);
        raise(ErrorCode::kBadData, "'in <string>' requires string as left operand, not {}", type_name(item));
      }
      heap.work(container.str().size());
      return container.str().find(item.str()) != std::string::npos;
    case Kind::kDict:
      return heap.find(*container.dict, item) != nullptr;
    case Kind::kSeq: {
      Seq& seq = *container.seq;
      size_t begin = seq.sized() ? 0 : seq.next;
      for (size_t i = begin; i < seq.items.size(); i++) {
        if (!seq.sized()) seq.next = i + 1;
        if (same(heap, seq.items[i], item)) return true;
      }
      return false;
    }
    default:
      raise(ErrorCode::kBadData, "argument of type '{}' is not iterable", type_name(container));
  }
}

}  // namespace godwit::jinja
