#include "text/jinja/arguments.h"

#include <algorithm>
#include <limits>

namespace godwit::jinja {

Arguments::Arguments(std::string_view what, const Args& args, std::initializer_list<std::string_view> params,
                     size_t required)
    : what_(what), values_(params.size(), nullptr) {
  if (args.positional.size() > params.size()) {
    raise(ErrorCode::kBadData, "{} takes at most {} arguments, {} were given", what, params.size(),
          args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); i++) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    auto it = std::find(params.begin(), params.end(), name);
    if (it == params.end()) raise(ErrorCode::kBadData, "{} has no argument '{}'", what, name);
    const Value*& slot = values_[static_cast<size_t>(it - params.begin())];
    if (slot != nullptr) raise(ErrorCode::kBadData, "{} got several values for argument '{}'", what, name);
    slot = &value;
  }
  for (size_t i = 0; i < required; i++) {
    if (!given(i)) raise(ErrorCode::kBadData, "{} needs the argument '{}'", what, *(params.begin() + i));
  }
}

int64_t Arguments::integer(size_t i, int64_t otherwise) const {
  if (!given(i)) return otherwise;
  const Value& v = *values_[i];
  require_defined(v);
  if (!v.is_integral()) raise(ErrorCode::kBadData, "{} needs an integer, not {}", what_, type_name(v));
  constexpr Int kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::clamp(v.as_int(), kMin, kMax));
}

const std::string& Arguments::text(size_t i) const {
  if (!given(i)) raise(ErrorCode::kBadData, "{} needs a string", what_);
  const Value& v = *values_[i];
  require_defined(v);
  if (!v.is(Kind::kString)) raise(ErrorCode::kBadData, "{} needs a string, not {}", what_, type_name(v));
  return v.str();
}

}  // namespace godwit::jinja
