#include "server/api_keys.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/result.h"

namespace godwit::server {

ApiKeys::Digest ApiKeys::digest(std::string_view key) {
  Digest result{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), result.data());
  return result;
}

Result<ApiKeys> ApiKeys::parse(std::string_view text, std::string_view label) {
  ApiKeys keys;
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const size_t colon = line.find(':');
    // Never the line itself: it may hold a key.
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == line.size())
      return errorf(ErrorCode::kBadData, "{}: line {} is not NAME:KEY", label, number);
    Entry entry{std::string(line.substr(0, colon)), digest(line.substr(colon + 1))};
    for (const Entry& other : keys.entries_)
      if (other.key == entry.key)
        return errorf(ErrorCode::kBadData, "{}: line {} has the key of another name", label, number);
    keys.entries_.push_back(std::move(entry));
  }
  if (keys.entries_.empty()) return errorf(ErrorCode::kBadData, "{}: there is no key; write lines NAME:KEY", label);
  return keys;
}

Result<ApiKeys> ApiKeys::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return errorf(ErrorCode::kNotFound, "{}: the key file cannot be read: {}", path, std::strerror(errno));
  return parse(text.str(), path);
}

std::optional<std::string> ApiKeys::find(std::string_view key) const {
  const Digest wanted = digest(key);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_)
    if (CRYPTO_memcmp(entry.key.data(), wanted.data(), wanted.size()) == 0) found = &entry;
  return found != nullptr ? std::optional(found->name) : std::nullopt;
}

}  // namespace godwit::server
