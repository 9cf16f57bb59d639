#include "report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pagefold::report {
namespace {

TEST(Report, EscapesWhatHtmlReads) {
  EXPECT_EQ(escaped("a<b>&\"c\"\x01\n"), "a&lt;b&gt;&amp;&quot;c&quot;\n");
  Page page("<script>");
  page.paragraph("<img src=x>");
  page.table({{"<h>"}, {{"a & b"}}, 1});
  const std::string html = page.html();
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_NE(html.find("a &amp; b"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos);  // nothing is fetched
}

TEST(Report, MarksCoverTheValues) {
  EXPECT_EQ(axis_marks(0, 10, false), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_marks(1, 1000, true), (std::vector<double>{1, 10, 100, 1000}));
  for (const auto& [low, high] :
       {std::pair{0.037, 0.041}, {-3.0, 7.5}, {1e6, 5.5e9}, {0.0, 1e-9}}) {
    const auto marks = axis_marks(low, high, false);
    ASSERT_GE(marks.size(), 2u);
    EXPECT_LE(marks.size(), 9u);
    EXPECT_LE(marks.front(), low);
    EXPECT_GE(marks.back(), high * (1 - 1e-12));
  }
}

TEST(Report, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(1500), "1,500");
  EXPECT_EQ(short_number(-1234567), "-1,234,567");
  EXPECT_EQ(short_number(0.000032), "3.2e-05");
}

TEST(Report, DrawsPointsWhereTheyBelong) {
  Plot plot;
  plot.series = {{"a", {{0, 0, {}, ""}, {10, 5, std::pair{4.0, 6.0}, "five"}}},
                 {"b <", {{5, std::numeric_limits<double>::quiet_NaN(), {}, ""}}, true, true}};
  plot.title = "T";
  const std::string out = svg(plot);
  // The first point is the corner of both axes, the last one lies at the right end.
  EXPECT_NE(out.find("cx=\"78.0\" cy=\"326.0\""), std::string::npos) << out;
  EXPECT_NE(out.find("cx=\"660.0\""), std::string::npos);
  EXPECT_NE(out.find("<title>five</title>"), std::string::npos);
  EXPECT_NE(out.find("b &lt;"), std::string::npos);
  EXPECT_EQ(out.find("nan"), std::string::npos);
  EXPECT_EQ(out, svg(plot));
  // A long name has its room.
  EXPECT_NE(out.find("viewBox=\"0 0 860 "), std::string::npos);
  plot.series[1].name = std::string(40, 'x');
  EXPECT_NE(svg(plot).find("viewBox=\"0 0 994 "), std::string::npos);
}

TEST(Report, SurvivesNothingToDraw) {
  Plot plot;
  EXPECT_NE(svg(plot).find("<svg"), std::string::npos);
  plot.x_log = plot.y_log = true;
  plot.series = {{"a", {{0, 1, {}, ""}, {3, 3, {}, ""}}}};
  const std::string out = svg(plot);
  EXPECT_EQ(out.find("inf"), std::string::npos);
  EXPECT_EQ(out.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace pagefold::report
