// The page of a load run.
#include <algorithm>

#include <fmt/format.h>

#include "eval/load/report.h"
#include "eval/page.h"

namespace godwit::load {
namespace {

constexpr double kWidth = 460, kWide = 940, kHeight = 260, kLeft = 48, kBottom = 34, kTop = 8, kRight = 12;

struct Curve {
  std::string_view name, look;  // look: CSS class
  std::vector<std::pair<double, double>> points;
};

std::string figure(std::string_view title, std::string_view x_name, const Axis& x, const Axis& y,
                   const std::vector<double>& x_ticks, const std::string& inside) {
  const double width = x.pixels + kLeft + kRight;
  std::string svg = fmt::format("<figure><figcaption>{}</figcaption><svg width=\"{}\" height=\"{}\" role=\"img\">\n",
                                escaped(title), width, kHeight);
  for (int i = 0; i <= 4; ++i) {
    const double value = y.low + (y.high - y.low) * i / 4;
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:.4g}</text>\n",
        kLeft, width - kRight, y.at(value), y.at(value), kLeft - 5, y.at(value) + 4, value);
  }
  for (double value : x_ticks)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.3g}</text>\n", x.at(value),
                       kHeight - kBottom + 15, value);
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", kLeft + x.pixels / 2, kHeight - 4,
                     escaped(x_name));
  return svg + inside + "</svg></figure>\n";
}

std::string path(const Curve& curve, const Axis& x, const Axis& y) {
  std::string d;
  for (const auto& [px, py] : curve.points)
    d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x.at(px), y.at(py));
  return fmt::format("<g class=\"series {}\"><path d=\"{}\"><title>{}</title></path></g>\n", curve.look, d,
                     escaped(curve.name));
}

// Shares of all against milliseconds.
std::string cdf_plot(std::string_view title, std::string_view look, const Histogram& of, double target_seconds) {
  if (of.count() == 0) return "";
  Curve curve{title, look, {}};
  double low = 1e300, high = 0;
  for (const auto& [seconds, share] : of.cdf()) {
    const double ms = std::max(seconds * 1e3, 0.01);
    if (curve.points.empty()) curve.points.emplace_back(ms, 0);
    curve.points.emplace_back(ms, share);
    low = std::min(low, ms), high = std::max(high, ms);
  }
  if (target_seconds > 0) low = std::min(low, target_seconds * 1e3), high = std::max(high, target_seconds * 1e3);
  const Axis x{low * 0.95, high * 1.05, true, kWidth - kLeft - kRight, kLeft};
  const Axis y{0, 1, false, -(kHeight - kBottom - kTop), kHeight - kBottom};
  std::vector<double> ticks;
  for (int i = 0; i <= 4; ++i) ticks.push_back(low * std::pow(high / low, i / 4.0));
  if (high <= low) ticks.resize(1);
  std::string inside = path(curve, x, y);
  if (target_seconds > 0)
    inside += path({"target", "base", {{target_seconds * 1e3, 0}, {target_seconds * 1e3, 1}}}, x, y);
  return figure(title, "milliseconds", x, y, ticks, inside);
}

std::string time_line(std::string_view title, double seconds, const std::vector<Curve>& curves,
                      const std::string& dots = {}, double dots_high = 0) {
  double high = std::max(dots_high, 1e-9);
  for (const Curve& curve : curves)
    for (const auto& point : curve.points) high = std::max(high, point.second);
  const Axis x{0, std::max(seconds, 1e-3), false, kWide - kLeft - kRight, kLeft};
  const Axis y{0, high * 1.05, false, -(kHeight - kBottom - kTop), kHeight - kBottom};
  std::vector<double> ticks;
  for (int i = 0; i <= 8; ++i) ticks.push_back(x.high * i / 8);
  std::string inside = dots;
  for (const Curve& curve : curves) inside += path(curve, x, y);
  return figure(title, "seconds", x, y, ticks, inside);
}

// Tokens per second and open requests, each in at most 160 steps.
std::pair<Curve, Curve> over_time(const LoadRun& run) {
  constexpr size_t kSteps = 160;
  const double step = std::max(run.seconds / kSteps, LoadRun::kBinSeconds);
  const auto steps = static_cast<size_t>(run.seconds / step) + 1;
  std::vector<double> tokens(steps), change(steps + 1);
  for (size_t i = 0; i < run.tokens_in_bin.size(); ++i)
    tokens[std::min(static_cast<size_t>(static_cast<double>(i) * LoadRun::kBinSeconds / step), steps - 1)] +=
        run.tokens_in_bin[i] / step;
  for (const Record& record : run.records) {
    change[std::min(static_cast<size_t>(record.sent / step), steps)] += 1;
    change[std::min(static_cast<size_t>(record.end / step), steps)] -= 1;
  }
  std::pair<Curve, Curve> curves{{"output tokens per second", "s0", {}}, {"open requests", "s1", {}}};
  double open = 0;
  for (size_t i = 0; i < steps; ++i) {
    open += change[i];
    curves.first.points.emplace_back((static_cast<double>(i) + 0.5) * step, tokens[i]);
    curves.second.points.emplace_back((static_cast<double>(i) + 0.5) * step, open);
  }
  return curves;
}

// When requests went out, and how long their first token took; failures at the foot. At most 4,000 dots.
std::string first_tokens(const LoadRun& run, double most) {
  const Axis x{0, std::max(run.seconds, 1e-3), false, kWide - kLeft - kRight, kLeft};
  const Axis y{0, std::max(most, 1e-9) * 1.05, false, -(kHeight - kBottom - kTop), kHeight - kBottom};
  const size_t every = run.records.size() / 4000 + 1;
  std::string dots;
  for (size_t i = 0; i < run.records.size(); i += every) {
    const Record& r = run.records[i];
    dots += fmt::format("<circle r=\"2.2\" cx=\"{:.1f}\" cy=\"{:.1f}\" class=\"{}\" style=\"fill:var(--c)\"/>",
                        x.at(r.sent), y.at(r.ok ? r.ttft() * 1e3 : 0), r.ok ? "s2" : "s6");
  }
  return dots + "\n";
}

std::string table(const LoadRun& run, const Summary& s) {
  std::string html = "<div class=\"wide\"><table><tr><th>milliseconds<th>p50<th>p90<th>p99<th>mean<th>max</tr>\n";
  auto row = [&](std::string_view name, const Histogram& of) {
    html += fmt::format("<tr><td>{}<td>{:.1f}<td>{:.1f}<td>{:.1f}<td>{:.1f}<td>{:.1f}</tr>\n", name,
                        of.percentile(0.5) * 1e3, of.percentile(0.9) * 1e3, of.percentile(0.99) * 1e3, of.mean() * 1e3,
                        of.most() * 1e3);
  };
  row("time to first token", s.ttft);
  row("between tokens", run.gaps);
  row("whole answer", s.end_to_end);
  row("generator: requests late by", run.send_lag);
  row("generator: timers late by", run.loop_lag);
  return html + "</table></div>\n";
}

}  // namespace

std::string load_html(const LoadRun& run, const Summary& s, const Targets& targets, const Heading& heading) {
  std::string html = page_head(fmt::format("{} under load", heading.model));
  html += fmt::format(
      "<p>{} ({}). {}</p>\n<p>{} of {} requests answered in {:.1f} s: {:.2f} requests/s, {:.1f} output tokens/s.",
      escaped(heading.url), escaped(heading.api), escaped(heading.workload), s.answered, run.records.size(), s.seconds,
      s.per_second(s.answered), s.per_second(s.output_tokens));
  if (targets.any())
    html += fmt::format(" Within the targets (dashed): {}, {:.2f} a second.", s.good, s.per_second(s.good));
  html += "</p>\n";
  for (const auto& [kind, failures] : run.failures)
    html += fmt::format("<p>Failed: {} × {}: {}</p>\n", failures.count, escaped(kind), escaped(failures.example));
  if (run.open_at_stop) html += fmt::format("<p>This run was {}.</p>\n", stopped_text(run));
  if (!s.lagged.empty()) html += fmt::format("<p>The generator did not keep up: {}.</p>\n", escaped(s.lagged));
  html += table(run, s) + "<h2>How long</h2>\n<p>The share of all that took no longer.</p>\n";
  html += cdf_plot("Time to first token", "s2", s.ttft, targets.ttft_seconds);
  html += cdf_plot("Between tokens", "s0", run.gaps, targets.per_token_seconds);
  html += cdf_plot("Whole answer", "s3", s.end_to_end, 0);
  html += "<h2>When</h2>\n";
  const std::pair<Curve, Curve> curves = over_time(run);
  html += time_line("Output tokens per second", run.seconds, {curves.first});
  html += time_line("Open requests", run.seconds, {curves.second});
  const double most_ms = s.ttft.most() * 1e3;
  html += time_line("Milliseconds to the first token, by when the request went out; failures at the foot", run.seconds,
                    {}, first_tokens(run, most_ms), most_ms);
  return html + "</html>\n";
}

}  // namespace godwit::load
