// How values look as text: str(), repr() and json.dumps() of Python.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/unicode.h"
#include "text/jinja/value.h"

namespace godwit::jinja {
namespace {

void append_string_repr(std::string& out, std::string_view text) {
  bool single = text.find('\'') != std::string_view::npos, dbl = text.find('"') != std::string_view::npos;
  char quote = single && !dbl ? '"' : '\'';
  out += quote;
  for (size_t pos = 0; pos < text.size();) {
    Character c = decode_at(text, pos);
    if (c.code == static_cast<uint8_t>(quote) || c.code == '\\') {
      out += '\\';
      out += static_cast<char>(c.code);
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (c.code >= kBadByte || is_printable(c.code)) {
      out += text.substr(pos, c.bytes);
    } else if (c.code < 0x100) {
      out += fmt::format("\\x{:02x}", c.code);
    } else {
      out += c.code < 0x10000 ? fmt::format("\\u{:04x}", c.code) : fmt::format("\\U{:08x}", c.code);
    }
    pos += c.bytes;
  }
  out += quote;
}

void append_json_string(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  for (size_t pos = 0; pos < text.size();) {
    Character c = decode_at(text, pos);
    switch (c.code) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c.code < 0x20 || (ascii && c.code > 0x7e && c.code < 0x10000)) {
          out += fmt::format("\\u{:04x}", c.code);
        } else if (ascii && c.code >= 0x10000 && c.code < kBadByte) {
          uint32_t rest = c.code - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
        } else {
          out += text.substr(pos, c.bytes);
        }
    }
    pos += c.bytes;
  }
  out += '"';
}

class Printer {
 public:
  explicit Printer(Heap& heap) : heap_(heap) {}

  std::string out;

  void repr(const Value& v, int depth) {
    enter(depth);
    switch (v.kind) {
      case Kind::kUndefined:
        out += "Undefined";
        break;
      case Kind::kNone:
        out += "None";
        break;
      case Kind::kBool:
        out += v.boolean ? "True" : "False";
        break;
      case Kind::kInt:
        out += fmt::format("{}", v.integer);
        break;
      case Kind::kFloat:
        out += float_repr(v.real);
        break;
      case Kind::kString:
        if (v.markup) out += "Markup(";
        append_string_repr(out, v.str());
        if (v.markup) out += ')';
        break;
      case Kind::kSeq:
        repr_seq(*v.seq, depth);
        break;
      case Kind::kDict:
      case Kind::kNamespace:
        out += v.is(Kind::kDict) ? "{" : "<Namespace {";
        for (size_t i = 0; i < v.dict->entries.size(); i++) {
          if (i > 0) out += ", ";
          repr(v.dict->entries[i].first, depth + 1);
          out += ": ";
          repr(v.dict->entries[i].second, depth + 1);
        }
        out += v.is(Kind::kDict) ? "}" : "}>";
        break;
      default:
        raise(ErrorCode::kUnsupported, "printing a {} is not supported", type_name(v));
    }
  }

  void json(const Value& v, const JsonStyle& style, int depth) {
    enter(depth);
    switch (v.kind) {
      case Kind::kNone:
        out += "null";
        break;
      case Kind::kBool:
        out += v.boolean ? "true" : "false";
        break;
      case Kind::kInt:
        out += fmt::format("{}", v.integer);
        break;
      case Kind::kFloat:
        json_float(v.real);
        break;
      case Kind::kString:
        append_json_string(out, v.str(), style.ascii);
        break;
      case Kind::kSeq:
        json_list(v, style, depth);
        break;
      case Kind::kDict:
        json_object(*v.dict, style, depth);
        break;
      default:
        raise(ErrorCode::kBadData, "tojson: object of type {} is not JSON serializable", type_name(v));
    }
  }

 private:
  void enter(int depth) {
    heap_.step();
    if (depth > heap_.limits().max_nesting) {
      raise(ErrorCode::kExhausted, "a printed value is nested deeper than {}", heap_.limits().max_nesting);
    }
    if (out.size() > heap_.limits().max_memory_bytes) heap_.work(out.size());
  }

  void repr_seq(const Seq& seq, int depth) {
    if (seq.flavor == Flavor::kRange) {
      out += seq.step == 1 ? fmt::format("range({}, {})", seq.start, seq.stop)
                           : fmt::format("range({}, {}, {})", seq.start, seq.stop, seq.step);
      return;
    }
    if (!seq.sized()) raise(ErrorCode::kUnsupported, "printing a generator is not supported; add | list");
    if (!seq.indexable()) out += fmt::format("{}(", type_name(Value::of(const_cast<Seq*>(&seq))));
    out += seq.is_tuple() ? '(' : '[';
    for (size_t i = 0; i < seq.items.size(); i++) {
      if (i > 0) out += ", ";
      repr(seq.items[i], depth + 1);
    }
    if (seq.is_tuple() && seq.items.size() == 1) out += ',';
    out += seq.is_tuple() ? ')' : ']';
    if (!seq.indexable()) out += ')';
  }

  void json_float(double d) {
    if (std::isnan(d)) {
      out += "NaN";
    } else if (std::isinf(d)) {
      out += d > 0 ? "Infinity" : "-Infinity";
    } else {
      out += float_repr(d);
    }
  }

  void newline(const JsonStyle& style, int depth) {
    if (!style.pretty) return;
    out += '\n';
    for (int i = 0; i < depth; i++) out += style.indent;
  }

  void json_list(const Value& v, const JsonStyle& style, int depth) {
    const Seq& seq = *v.seq;
    if (seq.flavor != Flavor::kList && !seq.is_tuple()) {
      raise(ErrorCode::kBadData, "tojson: object of type {} is not JSON serializable; add | list", type_name(v));
    }
    out += '[';
    for (size_t i = 0; i < seq.items.size(); i++) {
      if (i > 0) out += style.item_separator;
      newline(style, depth + 1);
      json(seq.items[i], style, depth + 1);
    }
    if (!seq.items.empty()) newline(style, depth);
    out += ']';
  }

  void json_key(const Value& key, const JsonStyle& style) {
    switch (key.kind) {
      case Kind::kString:
        append_json_string(out, key.str(), style.ascii);
        break;
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
        out += '"';
        json(key, style, 0);
        out += '"';
        break;
      default:
        raise(ErrorCode::kBadData, "tojson: keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void json_object(const Dict& dict, const JsonStyle& style, int depth) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return less(heap_, a->first, b->first); });
    }
    out += '{';
    for (size_t i = 0; i < entries.size(); i++) {
      if (i > 0) out += style.item_separator;
      newline(style, depth + 1);
      json_key(entries[i]->first, style);
      out += style.key_separator;
      json(entries[i]->second, style, depth + 1);
    }
    if (!entries.empty()) newline(style, depth);
    out += '}';
  }

  Heap& heap_;
};

}  // namespace

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  size_t e = shortest.find('e');
  int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  std::string digits;
  for (char c : shortest.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = std::signbit(d) ? "-" : "";
  int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += fmt::format(".{}", digits.substr(1));
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  size_t point = static_cast<size_t>(exponent) + 1;
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

std::string to_str(Heap& heap, const Value& v) {
  if (v.is(Kind::kString)) return v.str();
  if (v.is(Kind::kUndefined)) return {};
  return to_repr(heap, v);
}

std::string to_repr(Heap& heap, const Value& v) {
  Printer printer(heap);
  printer.repr(v, 0);
  return std::move(printer.out);
}

std::string to_json(Heap& heap, const Value& v, const JsonStyle& style) {
  Printer printer(heap);
  printer.json(v, style, 0);
  return std::move(printer.out);
}

}  // namespace godwit::jinja
