#include "eval/page.h"

#include <fmt/format.h>

namespace godwit {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #6a737d; --line: #d0d7de; --page: #ffffff; --good: 34 136 92; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #8b949e; --line: #30363d; --page: #0d1117; --good: 63 185 120; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 66em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin: 2em 0 .3em } p { color: var(--soft); margin: .2em 0 .8em }
figure { display: inline-block; margin: 0 1em 1em 0 } figcaption { font-weight: 600; font-size: .9em }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft) } svg .axis { stroke: var(--line) }
.s0{--c:#4477dd}.s1{--c:#dd6633}.s2{--c:#22997a}.s3{--c:#aa4499}.s4{--c:#c49a00}.s5{--c:#33aacc}.s6{--c:#d64570}.s7{--c:#7a8f2a}
.base { --c: var(--soft) }
.series path { fill: none; stroke: var(--c); stroke-width: 1.6 } .series circle { fill: var(--c) }
.base path, .late path.more { stroke-dasharray: 4 3 }
ul.key { list-style: none; padding: 0; margin: .2em 0 1em; display: flex; flex-wrap: wrap; gap: .2em 1.2em; font-size: .9em }
ul.key span { display: inline-block; width: .8em; height: .8em; border-radius: 50%; background: var(--c); margin-right: .4em }
table { border-collapse: collapse; font-size: .85em; font-variant-numeric: tabular-nums } .wide { overflow-x: auto }
th, td { text-align: right; padding: .2em .7em; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child { text-align: left }
rect.cell { stroke: var(--page) }
)";

}  // namespace

std::string page_head(std::string_view title) {
  return fmt::format(
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
      "<title>{}</title><style>{}</style>\n<h1>{}</h1>\n",
      escaped(title), kStyle, escaped(title));
}

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

}  // namespace godwit
