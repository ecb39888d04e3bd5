// The page of a sweep: inline SVG and CSS, nothing to load, light or dark as the reader's system is.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "eval/page.h"
#include "eval/sweep_report.h"

namespace godwit {
namespace {

struct Series {
  std::string name;
  std::string look;  // CSS class
};

// Methods in the order of the sweep, each with a colour; the baselines are grey.
std::vector<Series> series_of(const std::vector<SweepSummary>& all) {
  std::vector<Series> series;
  size_t colour = 0;
  for (const SweepSummary& s : all) {
    const std::string name = s.method.name();
    if (std::any_of(series.begin(), series.end(), [&](const Series& x) { return x.name == name; })) continue;
    const bool base = s.method.policy == "random" || s.method.policy == "streaming" || s.method.policy.empty() ||
                      s.method.policy == "mikv:base=random";
    series.push_back({name, base ? "base" : fmt::format("s{}", colour++ % 8)});
  }
  return series;
}

using Value = double (*)(const SweepSummary&);

std::string plot(const std::vector<SweepSummary>& all, int length, std::string_view title, std::string_view x_name,
                 Value x_of, Value y_of, double y_high) {
  constexpr double kWidth = 460, kHeight = 260, kLeft = 40, kBottom = 34, kTop = 8, kRight = 12;
  double low = 1e300, high = 0;
  for (const SweepSummary& s : all) {
    if (s.length != length || x_of(s) <= 0) continue;
    low = std::min(low, x_of(s)), high = std::max(high, x_of(s));
  }
  if (high <= 0) return "";
  const Axis x{low * 0.9, high * 1.1, true, kWidth - kLeft - kRight, kLeft};
  const Axis y{0, y_high, false, -(kHeight - kBottom - kTop), kHeight - kBottom};
  std::string svg = fmt::format("<figure><figcaption>{}</figcaption><svg width=\"{}\" height=\"{}\" role=\"img\">\n",
                                escaped(title), kWidth, kHeight);
  for (int i = 0; i <= 4; ++i) {
    const double value = y_high * i / 4;
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:.2g}</text>\n",
        kLeft, kWidth - kRight, y.at(value), y.at(value), kLeft - 5, y.at(value) + 4, value);
  }
  for (int i = 0; i <= 4; ++i) {
    const double value = low * std::pow(high / low, i / 4.0);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n", x.at(value),
                       kHeight - kBottom + 15, value);
    if (high <= low) break;
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", kLeft + x.pixels / 2, kHeight - 4,
                     escaped(x_name));
  for (const Series& series : series_of(all)) {
    std::vector<const SweepSummary*> points;
    for (const SweepSummary& s : all)
      if (s.length == length && s.method.name() == series.name && x_of(s) > 0) points.push_back(&s);
    std::sort(points.begin(), points.end(), [&](auto* a, auto* b) { return x_of(*a) < x_of(*b); });
    std::string path, dots;
    for (const SweepSummary* s : points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.at(x_of(*s)), y.at(y_of(*s)));
      dots +=
          fmt::format("<circle r=\"3.4\" cx=\"{:.1f}\" cy=\"{:.1f}\"><title>{} {}: {:.3g} at {:.0f}</title></circle>",
                      x.at(x_of(*s)), y.at(y_of(*s)), escaped(series.name), s->method.budget, y_of(*s), x_of(*s));
    }
    svg += fmt::format("<g class=\"series {}\"><path d=\"{}\"/>{}</g>\n", series.look, path, dots);
  }
  return svg + "</svg></figure>\n";
}

// Recall of late questions (known ones where there are no late) by depth of the fact and length of the text.
std::string heat_map(const std::vector<SweepRow>& rows, const SweepMethod& method, const std::set<int>& lengths,
                     bool known) {
  constexpr int kBins = 10, kCell = 22, kLeft = 48;
  std::string cells;
  int line = 0;
  for (int length : lengths) {
    std::array<SweepSummary::Share, kBins> bins{};
    for (const SweepRow& row : rows) {
      if (row.length != length || !(row.method == method)) continue;
      for (const SweepAnswer& answer : row.answers) {
        if (answer.known != known) continue;
        SweepSummary::Share& bin =
            bins[static_cast<size_t>(std::clamp(static_cast<int>(answer.depth * kBins), 0, kBins - 1))];
        ++bin.asked;
        bin.right += answer.right ? 1 : 0;
      }
    }
    const int top = line++ * kCell;
    cells += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", kLeft - 6, top + 15, length);
    for (int i = 0; i < kBins; ++i) {
      const SweepSummary::Share& bin = bins[static_cast<size_t>(i)];
      if (bin.asked == 0) continue;
      cells += fmt::format(
          "<rect class=\"cell\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"rgb(var(--good) / "
          "{:.2f})\"><title>{}-{}%: {} of {}</title></rect>",
          kLeft + i * kCell, top, kCell, kCell, 0.06 + 0.94 * bin.share(), i * 10, i * 10 + 10, bin.right, bin.asked);
    }
  }
  return fmt::format("<figure><figcaption>{} {}</figcaption><svg width=\"{}\" height=\"{}\">{}</svg></figure>\n",
                     escaped(method.name()), escaped(method.budget), kLeft + kBins * kCell + 4, line * kCell + 4,
                     cells);
}

std::string table(const std::vector<SweepSummary>& all) {
  std::string html =
      "<div class=\"wide\"><table><tr><th>method<th>budget<th>length<th>bytes/token<th>recall, known<th>recall, "
      "late<th>KL<th>same top<th>mass lost<th>prefill tok/s<th>decode tok/s</tr>\n";
  auto share = [](const SweepSummary::Share& x) { return x.asked > 0 ? fmt::format("{:.3f}", x.share()) : "–"; };
  for (const SweepSummary& s : all)
    html += fmt::format(
        "<tr><td>{}<td>{}<td>{}<td>{:.0f}<td>{}<td>{}<td>{:.4f}<td>{:.3f}<td>{:.1f}%<td>{:.0f}<td>{:.1f}</tr>\n",
        escaped(s.method.name()), escaped(s.method.budget), s.length, s.kv_bytes_per_token, share(s.known),
        share(s.late), s.mean_kl, s.same_top, s.mass_lost * 100, s.prefill_per_second, s.decode_per_second);
  return html + "</table></div>\n";
}

}  // namespace

std::string sweep_html(const std::vector<SweepRow>& rows, std::string_view title) {
  const std::vector<SweepSummary> all = summarize(rows);
  std::set<int> lengths;
  double most_kl = 0.01;
  bool any_late = false, any_known = false;
  for (const SweepSummary& s : all) {
    lengths.insert(s.length);
    most_kl = std::max(most_kl, s.mean_kl * 1.05);
    any_late |= s.late.asked > 0;
    any_known |= s.known.asked > 0;
  }
  std::string html =
      page_head(title) +
      "<p>Recall is the share of planted facts whose every token is the likeliest one. Known: the question was part of "
      "the prompt when the cache was compressed. Late: it came after. Bytes per token are what is resident, page ends "
      "and positions included. Grey: everything kept, and the baselines random and streaming.</p>\n<ul class=\"key\">";
  for (const Series& series : series_of(all))
    html += fmt::format("<li class=\"{}\"><span></span>{}</li>", series.look, escaped(series.name));
  html += "</ul>\n";

  const Value bytes = [](const SweepSummary& s) { return s.kv_bytes_per_token; };
  const Value decode = [](const SweepSummary& s) { return s.decode_per_second; };
  const Value late = [](const SweepSummary& s) { return s.late.share(); };
  const Value known = [](const SweepSummary& s) { return s.known.share(); };
  const Value kl = [](const SweepSummary& s) { return s.mean_kl; };
  for (int length : lengths) {
    html += fmt::format("<h2>{} tokens</h2>\n", length);
    if (any_late) html += plot(all, length, "Recall of late questions", "KV bytes per token", bytes, late, 1);
    if (any_known) html += plot(all, length, "Recall of known questions", "KV bytes per token", bytes, known, 1);
    html += plot(all, length, "KL from full attention, nats", "KV bytes per token", bytes, kl, most_kl);
    html += plot(all, length, any_late ? "Recall of late questions" : "Recall of known questions",
                 "generated tokens per second", decode, any_late ? late : known, 1);
  }
  html += fmt::format(
      "<h2>Where facts are found</h2>\n<p>Recall of {} questions by depth of the fact in the text (left: its "
      "beginning) and length.</p>\n",
      any_late ? "late" : "known");
  std::vector<SweepMethod> shown;
  for (const SweepSummary& s : all) {
    if (std::find(shown.begin(), shown.end(), s.method) != shown.end()) continue;
    shown.push_back(s.method);
    html += heat_map(rows, s.method, lengths, !any_late);
  }
  return html + "<h2>All figures</h2>\n" + table(all) + "</html>\n";
}

}  // namespace godwit
