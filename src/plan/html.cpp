// The page of a plan: how time falls as devices are added, where it goes, and what memory it takes.
#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "eval/page.h"
#include "plan/report.h"

namespace godwit::plan {
namespace {

constexpr double kWidth = 460, kHeight = 260, kLeft = 52, kRight = 12, kTop = 8, kBottom = 34;

struct Series {
  std::string name;
  std::vector<const PlanRow*> rows;  // by devices
};

// Whether the report has one set of degrees more than once, with different ways of attention.
bool has_several_modes(const PlanReport& report) {
  std::set<std::tuple<int64_t, int64_t, int, int>> seen;
  return std::any_of(report.rows.begin(), report.rows.end(), [&](const PlanRow& r) {
    return !seen.emplace(r.new_tokens, r.cached_tokens, r.result.tp, r.result.cp).second;
  });
}

// One for each prompt, degree of tensor parallelism and, where there are several, way of attention.
std::vector<Series> series_of(const PlanReport& report) {
  std::vector<Series> all;
  const bool modes = has_several_modes(report);
  for (const PlanRow& row : report.rows) {
    std::string name = fmt::format("{} tokens", row.new_tokens);
    if (row.cached_tokens > 0) name += fmt::format(" after {}", row.cached_tokens);
    name += fmt::format(", TP{}", row.result.tp);
    if (modes) name += ", " + row.result.mode();
    auto found = std::find_if(all.begin(), all.end(), [&](const Series& s) { return s.name == name; });
    if (found == all.end()) found = all.insert(all.end(), {name, {}});
    found->rows.push_back(&row);
  }
  for (Series& series : all)
    std::stable_sort(series.rows.begin(), series.rows.end(),
                     [](auto* a, auto* b) { return a->result.devices() < b->result.devices(); });
  return all;
}

std::string look(size_t series) {
  return fmt::format("s{}", series % 8);
}

using Value = double (*)(const PlanRow&);

std::string line_plot(const PlanReport& report, std::string_view title, Value y_of, bool logarithmic,
                      std::string (*text_of)(double)) {
  double x_low = 1e300, x_high = 0, y_low = 1e300, y_high = 0;
  for (const PlanRow& row : report.rows) {
    const double devices = row.result.devices(), value = y_of(row);
    x_low = std::min(x_low, devices), x_high = std::max(x_high, devices);
    y_low = std::min(y_low, value), y_high = std::max(y_high, value);
  }
  if (!logarithmic) y_low = 0, y_high = std::max(y_high, 1.0);
  const Axis x{x_low / 1.1, x_high * 1.1, true, kWidth - kLeft - kRight, kLeft};
  const Axis y{logarithmic ? y_low / 1.2 : 0, logarithmic ? y_high * 1.2 : y_high, logarithmic,
               -(kHeight - kBottom - kTop), kHeight - kBottom};
  std::string svg = fmt::format("<figure><figcaption>{}</figcaption><svg width=\"{}\" height=\"{}\" role=\"img\">\n",
                                escaped(title), kWidth, kHeight);
  for (int i = 0; i <= 4; ++i) {
    const double value = logarithmic ? y.low * std::pow(y.high / y.low, i / 4.0) : y.high * i / 4;
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>\n",
        kLeft, kWidth - kRight, y.at(value), y.at(value), kLeft - 5, y.at(value) + 4, text_of(value));
  }
  const std::vector<Series> all = series_of(report);
  std::string ticks;
  std::vector<int> named;
  for (const PlanRow& row : report.rows) {
    const int devices = row.result.devices();
    if (std::find(named.begin(), named.end(), devices) != named.end()) continue;
    named.push_back(devices);
    ticks += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x.at(devices),
                         kHeight - kBottom + 15, devices);
  }
  svg += ticks + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">devices</text>\n", kLeft + x.pixels / 2,
                             kHeight - 4);
  for (size_t i = 0; i < all.size(); ++i) {
    std::string path, dots;
    for (const PlanRow* row : all[i].rows) {
      const double at_x = x.at(row->result.devices()), at_y = y.at(y_of(*row));
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", at_x, at_y);
      dots += fmt::format("<circle r=\"3.4\" cx=\"{:.1f}\" cy=\"{:.1f}\"><title>{}, CP{} {}: {}</title></circle>", at_x,
                          at_y, escaped(all[i].name), row->result.cp, row->result.mode(), text_of(y_of(*row)));
    }
    svg += fmt::format("<g class=\"series {}\"><path d=\"{}\"/>{}</g>\n", look(i), path, dots);
  }
  return svg + "</svg></figure>\n";
}

struct Part {
  std::string name;
  double value = 0;
};

// One bar per line of the table, its parts side by side.
template <class Parts>
std::string bars(const PlanReport& report, std::string_view title, const Parts& parts_of,
                 double (*whole)(const PlanRow&)) {
  constexpr int kBar = 22, kName = 210;
  constexpr double kBars = 620;
  std::vector<std::string> names;
  std::string drawn;
  int top = 0;
  for (const PlanRow& row : report.rows) {
    drawn += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}+{}, TP{} x CP{} {}</text>", kName - 6,
                         top + 15, row.cached_tokens, row.new_tokens, row.result.tp, row.result.cp,
                         row.result.cp > 1 ? row.result.mode() : "");
    double left = kName;
    for (const Part& part : parts_of(row)) {
      auto known = std::find(names.begin(), names.end(), part.name);
      if (known == names.end()) known = names.insert(names.end(), part.name);
      const auto colour = static_cast<size_t>(known - names.begin());
      const double width = std::min(kBars * part.value / whole(row), kName + kBars - left);
      drawn += fmt::format(
          "<rect class=\"cell {}\" style=\"fill:var(--c);opacity:{}\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" "
          "height=\"{}\"><title>{}: {:.1f}%</title></rect>",
          look(colour), colour < 8 ? 1 : 0.55, left, top, std::max(0.0, width), kBar - 2, escaped(part.name),
          100 * part.value / whole(row));
      left += std::max(0.0, width);
    }
    top += kBar;
  }
  std::string key = "<ul class=\"key\">";
  for (size_t i = 0; i < names.size(); ++i)
    key += fmt::format("<li class=\"{}\"><span style=\"opacity:{}\"></span>{}</li>", look(i), i < 8 ? 1 : 0.55,
                       escaped(names[i]));
  return fmt::format("<h2>{}</h2>\n{}</ul>\n<svg width=\"{}\" height=\"{}\">{}</svg>\n", escaped(title), key,
                     kName + kBars + 4, top + 4, drawn);
}

std::vector<Part> prefill_parts(const PlanRow& row) {
  std::vector<Part> parts;
  for (const OpTime& op : row.result.prefill.ops) parts.push_back({op.name, op.seconds});
  parts.push_back({"waiting", row.result.prefill.waiting_s});
  return parts;
}

std::vector<Part> memory_parts(const PlanRow& row) {
  const MemoryUse& m = row.result.memory;
  return {{"weights", m.weights}, {"KV", m.kv}, {"ring buffers", m.ring}, {"activations", m.activations}};
}

std::string table(const PlanReport& report) {
  std::string html =
      "<div class=\"wide\"><table><tr><th>new tokens<th>cached<th>TP<th>CP<th>attention<th>TTFT<th>waiting"
      "<th>efficiency<th>TTIT<th>GB each<th>fits</tr>\n";
  for (const PlanRow& row : report.rows) {
    const PlanResult& r = row.result;
    html += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.1f}%<td>{:.1f}%<td>{}<td>{:.1f}<td>{}</tr>\n",
                        row.new_tokens, row.cached_tokens, r.tp, r.cp, r.mode(), seconds_text(r.prefill.seconds),
                        100 * r.prefill.waiting_s / r.prefill.seconds, 100 * r.efficiency,
                        seconds_text(r.decode.seconds), r.memory.total() / 1e9, r.fits ? "yes" : "no");
  }
  return html + "</table></div>\n";
}

std::string constants_table(const std::string& name, const std::vector<Constant>& constants) {
  std::string html = fmt::format(
      "<h2>Constants of {}</h2>\n<div class=\"wide\"><table><tr><th>constant<th>value<th>source<th>note</tr>\n",
      escaped(name));
  for (const Constant& c : constants)
    html += fmt::format("<tr><td>{}<td>{:.6g}<td>{}<td>{}</tr>\n", c.key, c.value, c.source, escaped(c.note));
  return html + "</table></div>\n";
}

}  // namespace

std::string plan_html(const PlanReport& report) {
  const std::vector<Series> all = series_of(report);
  std::string html = page_head(fmt::format("{} on {}", report.model.name, report.device.name)) +
                     fmt::format(
                         "<p>{}. Times are predictions: counted work over the constants below, and events of a "
                         "simulated ring. KV in {}.</p>\n<ul class=\"key\">",
                         escaped(report.device.description), escaped(report.kv_codec));
  for (size_t i = 0; i < all.size(); ++i)
    html += fmt::format("<li class=\"{}\"><span></span>{}</li>", look(i), escaped(all[i].name));
  html += "</ul>\n";
  const auto share = [](double value) { return fmt::format("{:.0f}%", 100 * value); };
  html += line_plot(
      report, "Time to the first token", [](const PlanRow& r) { return r.result.prefill.seconds; }, true, seconds_text);
  html += line_plot(
      report, "Time per further token", [](const PlanRow& r) { return r.result.decode.seconds; }, true, seconds_text);
  html += line_plot(
      report, "Efficiency of context parallelism", [](const PlanRow& r) { return r.result.efficiency; }, false, share);
  html += bars(report, "Where the time to the first token goes", prefill_parts,
               [](const PlanRow& r) { return r.result.prefill.seconds; });
  html += bars(report, "What the memory of a device holds", memory_parts,
               [](const PlanRow& r) { return r.result.memory.total(); });
  html += "<h2>All figures</h2>\n" + table(report) + constants_table(report.device.name, report.device.constants);
  if (!report.link.name.empty()) html += constants_table(report.link.name, report.link.constants);
  return html + "</html>\n";
}

}  // namespace godwit::plan
