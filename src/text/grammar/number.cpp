#include "text/grammar/number.h"

#include <charconv>
#include <map>
#include <tuple>

#include "base/result.h"

namespace godwit {
namespace {

using Node = GrammarBuilder::Node;
constexpr int kIntegerDigits = 18, kExactDigits = 15, kExponentDigits = 2;
constexpr int64_t kMostRemainders = 1000;

Decimal of_text(std::string_view text) {
  Decimal d;
  d.negative = text.starts_with('-');
  if (d.negative) text.remove_prefix(1);
  const size_t point = std::min(text.find('.'), text.size());
  d.whole = text.substr(0, point);
  d.fraction = point < text.size() ? text.substr(point + 1) : "";
  while (d.fraction.ends_with('0')) d.fraction.pop_back();
  return d;
}

bool is_zero(const Decimal& d) {
  return d.whole == "0" && d.fraction.empty();
}

// Magnitudes between two bounds that are multiples of k / 10^places.
struct Magnitudes {
  Decimal least, most;
  bool above_least = false, below_most = false, no_most = true;
  int most_digits = kIntegerDigits, most_fraction = 0;
  int64_t k = 1;
  int places = 0;
};

// How far a number is written: digits so far, how they compare with the bounds, and their remainder.
struct Written {
  int whole = 0, fraction = -1;  // digits; -1: no point yet
  bool zero = false;             // "0": only a point may follow
  int to_least = 0, to_most = 0;
  int64_t remainder = 0;
  auto key() const { return std::tuple(whole, fraction, zero, to_least, to_most, remainder); }
  bool operator<(const Written& other) const { return key() < other.key(); }
};

int compare_digit(int order, const std::string& digits, int index, char digit) {
  if (order != 0) return order;
  const char other = index < static_cast<int>(digits.size()) ? digits[static_cast<size_t>(index)] : '0';
  return digit < other ? -1 : digit > other ? 1 : 0;
}

// Of whole parts: the longer one is larger.
int compare_length(int order, const std::string& digits, int count) {
  const auto other = static_cast<int>(digits.size());
  return count < other ? -1 : count > other ? 1 : order;
}

class Machine {
 public:
  Machine(GrammarBuilder& builder, const Magnitudes& m, Node to) : b_(builder), m_(m), to_(to) {}

  void add(Node from) {
    nodes_[Written()] = from;
    std::vector<Written> work = {Written()};
    while (!work.empty() && !b_.full()) {
      const Written w = work.back();
      work.pop_back();
      const Node node = nodes_[w];
      if (may_end(w)) b_.skip(node, to_);
      for (const char c : std::string_view("0123456789.")) {
        const std::optional<Written> next = c == '.' ? point(w) : digit(w, c);
        if (!next) continue;
        const auto [it, added] = nodes_.try_emplace(*next, 0);
        if (added) {
          it->second = b_.node();
          work.push_back(*next);
        }
        b_.byte(node, static_cast<uint8_t>(c), static_cast<uint8_t>(c), it->second);
      }
    }
  }

 private:
  std::optional<Written> digit(Written w, char c) const {
    if (w.zero && w.fraction < 0) return std::nullopt;
    if (w.whole + std::max(w.fraction, 0) >= m_.most_digits) return std::nullopt;
    if (w.fraction >= 0) {
      if (w.fraction >= m_.most_fraction) return std::nullopt;
      w.to_least = compare_digit(w.to_least, m_.least.fraction, w.fraction, c);
      w.to_most = compare_digit(w.to_most, m_.most.fraction, w.fraction, c);
      ++w.fraction;
    } else {
      w.zero = w.whole == 0 && c == '0';
      w.to_least = compare_digit(w.to_least, m_.least.whole, w.whole, c);
      w.to_most = compare_digit(w.to_most, m_.most.whole, w.whole, c);
      ++w.whole;
    }
    w.remainder = (w.remainder * 10 + (c - '0')) % m_.k;
    return w;
  }

  std::optional<Written> point(Written w) const {
    if (w.fraction >= 0 || w.whole == 0 || m_.most_fraction == 0) return std::nullopt;
    w.to_least = compare_length(w.to_least, m_.least.whole, w.whole);
    w.to_most = compare_length(w.to_most, m_.most.whole, w.whole);
    w.fraction = 0;
    w.whole = std::min(w.whole, m_.most_digits);
    return w;
  }

  bool may_end(Written w) const {
    if (w.whole == 0 || w.fraction == 0) return false;
    if (w.fraction < 0) {
      w.to_least = compare_length(w.to_least, m_.least.whole, w.whole);
      w.to_most = compare_length(w.to_most, m_.most.whole, w.whole);
    }
    const int written = std::max(w.fraction, 0);
    // Digits of a bound that were not written: the number ends in zeros there.
    if (w.to_least == 0 && written < static_cast<int>(m_.least.fraction.size())) w.to_least = -1;
    if (w.to_most == 0 && written < static_cast<int>(m_.most.fraction.size())) w.to_most = -1;
    for (int i = written; i < m_.places; ++i) w.remainder = w.remainder * 10 % m_.k;
    return (w.to_least > 0 || (w.to_least == 0 && !m_.above_least)) &&
           (m_.no_most || w.to_most < 0 || (w.to_most == 0 && !m_.below_most)) && w.remainder == 0;
  }

  GrammarBuilder& b_;
  const Magnitudes& m_;
  Node to_;
  std::map<Written, Node> nodes_;
};

Node digits(GrammarBuilder& b, Node from, int most, Node to) {  // one to `most`
  for (int i = 0; i < most; ++i) {
    const Node next = b.node();
    b.byte(from, '0', '9', next);
    b.skip(next, to);
    from = next;
  }
  return to;
}

void add_plain(GrammarBuilder& b, bool integer, Node from, Node to) {
  const Node sign = b.node(), whole = b.node();
  b.skip(from, sign);
  b.byte(sign, '0', '0', whole);
  b.byte(from, '-', '-', sign);
  const Node first = b.node();
  b.byte(sign, '1', '9', first);
  b.skip(first, whole);
  digits(b, first, kIntegerDigits - 1, whole);
  b.skip(whole, to);
  if (integer) return;
  const Node point = b.node(), fraction = b.node(), e = b.node(), exponent = b.node();
  b.byte(whole, '.', '.', point);
  digits(b, point, kIntegerDigits, fraction);
  b.skip(fraction, to);
  for (const Node before : {whole, fraction}) b.any_of(before, "eE", e);
  b.any_of(e, "+-", exponent);
  b.skip(e, exponent);
  digits(b, exponent, kExponentDigits, to);
}

}  // namespace

Decimal Decimal::of(double value) {
  char text[400];
  const auto end = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed).ptr;
  return of_text(std::string_view(text, static_cast<size_t>(end - text)));
}

Decimal Decimal::of(int64_t value) {
  return of_text(std::to_string(value));
}

Status add_number(GrammarBuilder& b, const NumberBounds& bounds, Node from, Node to) {
  if (!bounds.any() && !bounds.integer) return add_plain(b, false, from, to), Status();
  Magnitudes positive;
  positive.most_digits = bounds.integer ? kIntegerDigits : kExactDigits;
  positive.most_fraction = bounds.integer ? 0 : kExactDigits - 1;
  if (bounds.multiple_of) {
    const Decimal& m = *bounds.multiple_of;
    const std::string k = m.whole + m.fraction;
    const auto read = std::from_chars(k.data(), k.data() + k.size(), positive.k);
    if (read.ec != std::errc() || positive.k < 1 || positive.k > kMostRemainders)
      return errorf(ErrorCode::kUnsupported, "a multipleOf of more than {} (without its point) is not supported",
                    kMostRemainders);
    positive.places = static_cast<int>(m.fraction.size());
    if (bounds.integer && positive.places > 0)
      return errorf(ErrorCode::kUnsupported, "for integers, a multipleOf that is no integer is not supported");
    positive.most_fraction = std::min(positive.most_fraction, positive.places);
  }
  Magnitudes negative = positive;
  negative.above_least = true;  // zero has no sign
  const bool least_negative = !bounds.least || bounds.least->negative;
  const bool most_negative = bounds.most && bounds.most->negative;
  if (bounds.least) {
    (least_negative ? negative.most : positive.least) = *bounds.least;
    (least_negative ? negative.below_most : positive.above_least) = bounds.above_least;
    negative.no_most = false;
  }
  if (bounds.most) {
    (most_negative ? negative.least : positive.most) = *bounds.most;
    (most_negative ? negative.above_least : positive.below_most) = bounds.below_most;
    positive.no_most = false;
  }
  if (!most_negative) Machine(b, positive, to).add(from);
  if (least_negative && !(bounds.least && is_zero(*bounds.least))) {
    const Node sign = b.node();
    b.byte(from, '-', '-', sign);
    Machine(b, negative, to).add(sign);
  }
  return {};
}

}  // namespace godwit
