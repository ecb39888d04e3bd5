#include "text/token_decoder.h"

#include <charconv>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "text/byte_map.h"

namespace godwit {
namespace {

using Json = nlohmann::json;
constexpr size_t kMaxReplacements = 16;
constexpr size_t kMaxContentBytes = 64;

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t pos = 0;
  for (size_t hit; (hit = text.find(from, pos)) != text.npos; pos = hit + from.size()) {
    out.append(text, pos, hit - pos);
    out += to;
  }
  out.append(text, pos);
  return out;
}

bool parse_byte_token(std::string_view token, std::string& out) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return false;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return false;
  out.assign(1, static_cast<char>(byte));
  return true;
}

// Reads decoders in order; `fused` is set once the tokens have become one text.
class DecoderReader {
 public:
  explicit DecoderReader(std::string_view label) : label_(label) {}

  Status read(const Json& value) {
    GODWIT_ASSIGN(const JsonObject object, JsonObject::of(value, std::string(label_)));
    GODWIT_ASSIGN(const std::string type, object.get<std::string>("type"));
    if (type == "Sequence") {
      const auto list = value.find("decoders");
      if (list == value.end() || !list->is_array()) {
        return errorf(ErrorCode::kBadData, "{}: a Sequence decoder has no list 'decoders'", label_);
      }
      for (const Json& item : *list) GODWIT_TRY(read(item));
      return {};
    }
    if (type == "Fuse") return fused_ = true, Status{};
    if (type == "Strip") return read_strip(object);
    if (fused_) return unsupported(fmt::format("'{}' after Fuse", type));
    if (type == "ByteLevel") return decoder.byte_level = true, Status{};
    if (type == "ByteFallback") return decoder.byte_fallback = true, Status{};
    if (type == "Replace") return read_replace(object);
    if (type == "Metaspace") return read_metaspace(object);
    return unsupported(fmt::format("'{}'", type));
  }

  TokenDecoder decoder;

 private:
  tl::unexpected<Error> unsupported(std::string_view what) const {
    return errorf(ErrorCode::kUnsupported,
                  "{}: the decoder {} is not supported (supported: ByteLevel, Metaspace, and a Sequence of Replace, "
                  "ByteFallback, Fuse, Strip)",
                  label_, what);
  }

  Status read_strip(const JsonObject& object) {
    GODWIT_ASSIGN(decoder.strip, object.get_or<std::string>("content", " "));
    GODWIT_ASSIGN(const int64_t start, object.get_or<int64_t>("start", 0));
    GODWIT_ASSIGN(const int64_t stop, object.get_or<int64_t>("stop", 0));
    if (!fused_ || stop != 0 || start < 0 || start > 16 || decoder.strip.empty() ||
        decoder.strip.size() > kMaxContentBytes) {
      return unsupported("Strip, other than from the start of the whole text,");
    }
    decoder.strip_count = static_cast<int>(start);
    return {};
  }

  Status read_replace(const JsonObject& object) {
    GODWIT_ASSIGN(const JsonObject pattern, object.object("pattern"));
    if (!pattern.has("String")) return unsupported("Replace with a regular expression");
    GODWIT_ASSIGN(std::string from, pattern.get<std::string>("String"));
    GODWIT_ASSIGN(std::string to, object.get<std::string>("content"));
    if (from.empty() || to.size() > from.size() || decoder.replacements.size() >= kMaxReplacements) {
      return unsupported("Replace that makes tokens longer");
    }
    decoder.replacements.emplace_back(std::move(from), std::move(to));
    return {};
  }

  Status read_metaspace(const JsonObject& object) {
    GODWIT_ASSIGN(decoder.metaspace, object.get_or<std::string>("replacement", "▁"));
    if (decoder.metaspace.empty()) return unsupported("Metaspace without a replacement");
    GODWIT_ASSIGN(const bool add, object.get_or<bool>("add_prefix_space", true));
    GODWIT_ASSIGN(const std::string scheme, object.get_or<std::string>("prepend_scheme", add ? "always" : "never"));
    decoder.metaspace_prefix = scheme != "never";
    return {};
  }

  std::string label_;
  bool fused_ = false;
};

}  // namespace

Result<TokenDecoder> TokenDecoder::from_json(const Json& value, std::string_view label) {
  DecoderReader reader(label);
  if (value.is_null()) {
    reader.decoder.spaces_between = true;
  } else {
    GODWIT_TRY(reader.read(value));
  }
  return std::move(reader.decoder);
}

std::string TokenDecoder::piece(std::string_view token, bool added) const {
  std::string out(token);
  if (byte_level && !added) out = chars_to_bytes(token).value_or(out);
  for (const auto& [from, to] : replacements) out = replace_all(out, from, to);
  if (byte_fallback) parse_byte_token(std::string(out), out);
  if (!metaspace.empty()) out = replace_all(out, metaspace, " ");
  return out;
}

std::string TokenDecoder::first_piece(std::string_view token, bool added) const {
  if (metaspace.empty() || !metaspace_prefix) return piece(token, added);
  return piece(replace_all(token, metaspace, ""), added);
}

}  // namespace godwit
