#include "kv/budget.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kv/method.h"

namespace godwit {
namespace {

template <class Number>
bool whole_number(std::string_view text, Number& value) {
  auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

Result<KvBudget::Split> parse_split(std::string_view text) {
  if (text == "head") return KvBudget::Split::kHead;
  if (text == "layer") return KvBudget::Split::kLayer;
  if (text == "all") return KvBudget::Split::kAll;
  return errorf(ErrorCode::kInvalidArgument, "split of the KV budget is '{}'; give head, layer or all", text);
}

}  // namespace

uint64_t bytes_from_text(std::string_view text) {
  double value = 0;
  auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(stop, static_cast<size_t>(text.data() + text.size() - stop));
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  if (unit == "KiB" || unit == "K") scale = 0x1p10;
  if (unit == "MiB" || unit == "M") scale = 0x1p20;
  if (unit == "GiB" || unit == "G") scale = 0x1p30;
  if (unit == "TiB" || unit == "T") scale = 0x1p40;
  const bool sound = error == std::errc() && value > 0 && value * scale >= 1 && value * scale <= 0x1p62;
  return sound ? static_cast<uint64_t>(value * scale) : 0;
}

Result<KvBudget> KvBudget::parse(std::string_view text) {
  GODWIT_ASSIGN(MethodSpec spec, parse_method_spec(text));
  KvBudget budget;
  for (const auto& [key, value] : spec.params) {
    if (key != "split")
      return errorf(ErrorCode::kInvalidArgument, "the KV budget has no parameter '{}'; it has split", key);
    GODWIT_ASSIGN(budget.split, parse_split(value));
  }
  const std::string_view amount = spec.name;
  double percent = 0;
  if (amount.ends_with('%') && whole_number(amount.substr(0, amount.size() - 1), percent) && percent > 0 &&
      percent <= 100) {
    budget.share = percent / 100;
    return budget;
  }
  budget.unit = Unit::kSlots;
  if (whole_number(amount, budget.amount) && budget.amount > 0) return budget;
  budget.unit = Unit::kBytes;
  budget.amount = bytes_from_text(amount);
  if (budget.amount == 0)
    return errorf(
        ErrorCode::kInvalidArgument,
        "'{}' is no KV budget; give tokens (4096), a share (25%) or memory (64MiB), and :split=head, layer or "
        "all if you like",
        text);
  return budget;
}

size_t KvBudget::slots_per_head(int32_t tokens, const KvShape& shape, const KvFormat& format) const {
  const auto heads = static_cast<uint64_t>(shape.layers) * static_cast<uint64_t>(shape.kv_heads);
  switch (unit) {
    case Unit::kSlots:
      return amount;
    case Unit::kShare:
      return std::max<size_t>(1, static_cast<size_t>(std::floor(share * tokens)));
    case Unit::kBytes:
      break;
  }
  const uint64_t bytes = amount / heads, page = format.page_bytes() + format.aux_bytes();
  uint64_t pages = bytes / page;
  if (format.seals) {  // the first pages and the last are open, and one that is not full
    const auto open = static_cast<uint64_t>((format.open_first + format.open_last) / format.page_tokens + 1);
    const uint64_t open_page = format.open_format().page_bytes() + format.aux_bytes();
    pages = bytes < open * open_page ? bytes / open_page : open + (bytes - open * open_page) / page;
  }
  return static_cast<size_t>(pages) * static_cast<size_t>(format.page_tokens);
}

Status KvBudget::check_pages(bool equal) const {
  if (unit != Unit::kBytes || equal) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "the KV codec has pages of different size for different layers, and a budget of bytes counts equal "
                "ones; give tokens (4096) or a share (25%)");
}

Result<KvTrigger> KvTrigger::parse(std::string_view text, int prefill_chunk) {
  if (text == "prefill") return KvTrigger{.prompt_end = true};
  if (text == "chunk") return KvTrigger{.prompt_end = true, .every = prefill_chunk};
  KvTrigger trigger;
  if (whole_number(text, trigger.every) && trigger.every > 0) return trigger;
  return errorf(ErrorCode::kInvalidArgument, "'{}' is no KV trigger; give prefill, chunk or a number of tokens", text);
}

}  // namespace godwit
