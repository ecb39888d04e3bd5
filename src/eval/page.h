// What pages with plots have in common: inline SVG and CSS, nothing to load, light or dark as the reader's system is.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

namespace godwit {

// From the doctype to the heading. Series of plots are of the CSS classes s0 to s7, or base (grey).
std::string page_head(std::string_view title);

// Text between tags or in an attribute.
std::string escaped(std::string_view text);

// Where a value lies on a plot.
struct Axis {
  double low, high;
  bool logarithmic;
  double pixels, start;  // from `start` on

  double at(double value) const {
    const double share = logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return start + pixels * std::clamp(share, 0.0, 1.0);
  }
};

}  // namespace godwit
