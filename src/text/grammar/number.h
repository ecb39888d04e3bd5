// Decimal numbers between bounds, and multiples, as automata over their digits.
#pragma once

#include <optional>
#include <string>

#include "text/grammar/builder.h"

namespace godwit {

struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;  // digits; without needless zeros, but `whole` has at least one digit
  static Decimal of(double value);
  static Decimal of(int64_t value);
};

struct NumberBounds {
  bool integer = false;
  std::optional<Decimal> least, most;
  bool above_least = false, below_most = false;  // the bound itself is left out
  std::optional<Decimal> multiple_of;            // positive
  bool any() const { return least || most || multiple_of; }
};

// Integers have at most 18 digits. Numbers without bounds have at most 18 digits before and 18 behind the point and an
// exponent of two digits; with bounds at most 15 digits and no exponent, so that a reader's doubles cannot round them
// across a bound. With bounds, and for integers, zero has no sign.
Status add_number(GrammarBuilder& builder, const NumberBounds& bounds, GrammarBuilder::Node from,
                  GrammarBuilder::Node to);

}  // namespace godwit
