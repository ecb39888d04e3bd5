// Who may ask: names and their keys from a file of lines NAME:KEY. Empty lines and lines that begin with # do not
// count.
//
// Keys are kept as digests and compared in constant time, all of them for every request: neither how long a comparison
// takes nor how many follow says anything about a key.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <godwit/status.h>

namespace godwit::server {

class ApiKeys {
 public:
  static Result<ApiKeys> parse(std::string_view text, std::string_view label);
  static Result<ApiKeys> load(const std::string& path);

  // The name that a key belongs to.
  std::optional<std::string> find(std::string_view key) const;
  size_t size() const { return entries_.size(); }

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest(std::string_view key);
  struct Entry {
    std::string name;
    Digest key;
  };
  std::vector<Entry> entries_;
};

}  // namespace godwit::server
