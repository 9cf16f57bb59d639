// A plot as SVG: axes with marks, lines and markers, a legend at the right.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "report/report.h"

namespace pagefold::report {
namespace {

constexpr double kWidth = 860, kHeight = 380;
constexpr double kLeft = 78, kRight = 660, kTop = 14, kBottom = 326;
constexpr size_t kColours = 8;

// One axis: values to pixels.
struct Axis {
  double low = 0, high = 1, from = 0, to = 1;
  bool log = false;
  std::vector<double> marks;

  double at(double v) const {
    const double a = log ? std::log10(low) : low, b = log ? std::log10(high) : high;
    return from + ((log ? std::log10(v) : v) - a) / (b - a) * (to - from);
  }
};

bool usable(const Plot& plot, const Point& p) {
  return std::isfinite(p.x) && std::isfinite(p.y) && (!plot.x_log || p.x > 0) &&
         (!plot.y_log || p.y > 0);
}

Axis make_axis(std::vector<double> values, bool log, double from, double to, bool from_zero) {
  Axis axis;
  axis.log = log;
  axis.from = from, axis.to = to;
  if (values.empty()) values = {log ? 1.0 : 0.0, log ? 10.0 : 1.0};
  if (from_zero && !log) values.push_back(0);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  double a = *low, b = *high;
  if (a == b) {  // one value: room on both sides
    const double room = a == 0 ? 1 : std::abs(a) * 0.1;
    a = log ? a / 2 : a - (from_zero && a == 0 ? 0 : room);
    b = log ? b * 2 : b + room;
  }
  axis.marks = axis_marks(a, b, log);
  axis.low = std::min(a, axis.marks.front());
  axis.high = std::max(b, axis.marks.back());
  return axis;
}

// The shapes differ too: colours alone are no distinction for everybody.
std::string marker(size_t index, double x, double y) {
  const std::string colour = fmt::format("fill=\"var(--c{})\"", index % kColours);
  switch (index % 4) {
    case 0:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" {}/>", x, y, colour);
    case 1:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"8\" height=\"8\" {}/>", x - 4,
                         y - 4, colour);
    case 2:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l5 9h-10z\" {}/>", x, y - 5, colour);
    default:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l5 5l-5 5l-5 -5z\" {}/>", x, y - 5, colour);
  }
}

void draw_axes(const Plot& plot, const Axis& x, const Axis& y, std::string& out) {
  for (const double m : y.marks) {
    const double p = y.at(m);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, kRight, p, kLeft - 8, p + 4, short_number(m));
  }
  for (const double m : x.marks) {
    const double p = x.at(m);
    out += fmt::format(
        "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
        p, kBottom, kBottom + 5, kBottom + 19, short_number(m));
  }
  out += fmt::format(
      "<path class=\"axis\" fill=\"none\" d=\"M{0} {1}V{2}H{3}\"/>\n"
      "<text x=\"{4}\" y=\"{5}\" text-anchor=\"middle\">{6}</text>\n"
      "<text x=\"14\" y=\"{7}\" text-anchor=\"middle\" transform=\"rotate(-90 14 "
      "{7})\">{8}</text>\n",
      kLeft, kTop, kBottom, kRight, (kLeft + kRight) / 2, kBottom + 42, escaped(plot.x_label),
      (kTop + kBottom) / 2, escaped(plot.y_label));
}

void draw_series(const Plot& plot, const Axis& x, const Axis& y, size_t index, std::string& out) {
  const Series& s = plot.series[index];
  const std::string dash = s.dashed ? " stroke-dasharray=\"6 4\"" : "";
  std::string path, marks;
  for (const Point& p : s.points) {
    if (!usable(plot, p)) continue;
    const double px = x.at(p.x), py = y.at(p.y);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px, py);
    if (p.range && std::isfinite(p.range->first) && std::isfinite(p.range->second)) {
      const auto clamped = [&](double v) { return y.at(std::clamp(v, y.low, y.high)); };
      marks += fmt::format(
          "<line stroke=\"var(--c{0})\" x1=\"{1:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" "
          "y2=\"{3:.1f}\"/>",
          index % kColours, px, clamped(p.range->first), clamped(p.range->second));
    }
    marks += fmt::format("<g>{}<title>{}</title></g>\n", marker(index, px, py),
                         escaped(p.label.empty() ? s.name : p.label));
  }
  if (s.line && !path.empty()) {
    out +=
        fmt::format("<path fill=\"none\" stroke-width=\"2\" stroke=\"var(--c{})\"{} d=\"{}\"/>\n",
                    index % kColours, dash, path);
  }
  out += marks;
  const double row = kTop + 12 + 20 * static_cast<double>(index);
  out += fmt::format(
      "<line stroke-width=\"2\" stroke=\"var(--c{0})\"{1} x1=\"{2}\" x2=\"{3}\" y1=\"{4}\" "
      "y2=\"{4}\"/>{5}<text class=\"name\" x=\"{6}\" y=\"{7}\">{8}</text>\n",
      index % kColours, dash, kRight + 14, kRight + 38, row, marker(index, kRight + 26, row),
      kRight + 46, row + 4, escaped(s.name));
}

}  // namespace

std::vector<double> axis_marks(double low, double high, bool log, int most) {
  std::vector<double> marks;
  if (log) {
    const double a = std::floor(std::log10(low)), b = std::ceil(std::log10(high));
    const bool dense = b - a <= 2;
    const double step = std::max(1.0, std::ceil((b - a) / most));
    for (double e = a; e <= b; e += step) {
      for (const double m : {1.0, 2.0, 5.0}) {
        const double v = m * std::pow(10.0, e);
        if (m > 1 && (!dense || v >= high)) break;
        if (dense && marks.size() == 1 && v <= low) marks.clear();
        marks.push_back(v);
        if (dense && v >= high) return marks;
      }
    }
    return marks;
  }
  const double rough = (high - low) / std::max(1, most - 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double part = rough / power;
  const double step = power * (part <= 1.0001 ? 1 : part <= 2.0001 ? 2 : part <= 5.0001 ? 5 : 10);
  for (double i = std::floor(low / step);; ++i) {
    marks.push_back(i * step);
    if (i * step >= high - step * 1e-9) break;
  }
  return marks;
}

std::string short_number(double value) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e9 || size < 1e-3) return fmt::format("{:.3g}", value);
  if (size < 1000) return fmt::format("{:.4g}", value);
  std::string digits = fmt::format("{:.0f}", size);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return (value < 0 ? "-" : "") + digits;
}

std::string svg(const Plot& plot) {
  std::vector<double> xs, ys;
  for (const Series& s : plot.series) {
    for (const Point& p : s.points) {
      if (!usable(plot, p)) continue;
      xs.push_back(p.x);
      ys.push_back(p.y);
      if (!p.range) continue;
      for (const double v : {p.range->first, p.range->second}) {
        if (std::isfinite(v) && (!plot.y_log || v > 0)) ys.push_back(v);
      }
    }
  }
  const Axis x = make_axis(std::move(xs), plot.x_log, kLeft, kRight, false);
  const Axis y = make_axis(std::move(ys), plot.y_log, kBottom, kTop, plot.y_from_zero);
  // Legends are as wide as their longest name; about 7 units a letter.
  double width = kWidth;
  for (const Series& s : plot.series)
    width = std::max(width, kRight + 54 + 7 * static_cast<double>(s.name.size()));
  const double height = std::max(kHeight, kTop + 20 * static_cast<double>(plot.series.size()) + 12);
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}: {} against {}; the figures are in "
      "the table\">\n",
      width, height, escaped(plot.title), escaped(plot.y_label), escaped(plot.x_label));
  draw_axes(plot, x, y, out);
  for (size_t i = 0; i < plot.series.size(); ++i) draw_series(plot, x, y, i, out);
  return out + "</svg>\n";
}

}  // namespace pagefold::report
