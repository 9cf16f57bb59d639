// A report as one HTML page that needs nothing beside itself: headings, paragraphs, tables and
// plots as inline SVG, in the reader's light or dark colours. Texts are escaped; the page has no
// scripts and makes no requests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pagefold::report {

struct Point {
  double x = 0, y = 0;
  std::optional<std::pair<double, double>> range;  // of y, drawn as a bar
  std::string label;                               // shown when pointed at
};
struct Series {
  std::string name;
  std::vector<Point> points;  // points that are not finite are left out
  bool line = true;           // joined in the order given; false: markers alone
  bool dashed = false;        // a bound or a reference rather than a contender
};
struct Plot {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  bool x_log = false, y_log = false;  // points that are not positive are left out
  bool y_from_zero = false;           // the axis begins at 0
};
struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  size_t text_columns = 1;  // the first ones: set to the left; numbers to the right
};

class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}
  void heading(std::string_view text);
  void paragraph(std::string_view text);
  void code(std::string_view text);
  void table(const Table& table);
  void plot(const Plot& plot);
  // The whole page. The same calls give the same bytes.
  std::string html() const;

 private:
  std::string title_, body_;
};

// What Page::plot writes: one <svg> element with its legend.
std::string svg(const Plot& plot);
// Text for HTML: & < > " are replaced, control characters left out.
std::string escaped(std::string_view text);

// Where an axis has its marks, ascending, at most about `most` of them; low <= high, both finite
// (and positive where log). All of [low, high] lies between the first and the last mark, except on
// logarithmic axes that span less than a decade.
std::vector<double> axis_marks(double low, double high, bool log, int most = 6);
// A mark or a figure in few characters: 0.25, 1,500, 3.2e-05.
std::string short_number(double value);

}  // namespace pagefold::report
