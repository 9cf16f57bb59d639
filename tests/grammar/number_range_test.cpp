#include "grammar/number_range.h"

#include <fmt/format.h>

#include <cmath>

#include "grammar_tools.h"

namespace pagefold::grammar::test {
namespace {

std::shared_ptr<TokenGrammar> range(const NumberBounds& bounds, bool integer) {
  Grammar g;
  auto made = TokenGrammar::make(g, g.rule_of(number_range(g, bounds, integer)), vocabulary());
  return made.ok() ? *made : nullptr;
}

// Every integer near the bounds, and every number of two decimals, against arithmetic.
TEST(NumberRange, IsExact) {
  const std::vector<Json> edges = {
      Json(nullptr), -120, -100, -7,   -1,   0,    1,     9, 10, 11, 99,
      100,           123,  -0.5, 0.25, 1.75, 9.99, -10.01};
  for (const Json& low : edges) {
    for (const Json& high : edges) {
      for (const bool open : {false, true}) {
        const NumberBounds b{low.is_null() ? nullptr : &low, high.is_null() ? nullptr : &high, open,
                             open};
        const auto inside = [&](double x) {
          const bool above =
              low.is_null() || (open ? x > low.get<double>() : x >= low.get<double>());
          return above &&
                 (high.is_null() || (open ? x < high.get<double>() : x <= high.get<double>()));
        };
        const auto integers = range(b, true), numbers = range(b, false);
        for (int i = -130; i <= 130; ++i) {
          const std::string text = fmt::format("{}", i);
          ASSERT_EQ(integers && integers->matches(text), inside(i))
              << low << " " << high << " " << open << " " << i;
          ASSERT_EQ(numbers && numbers->matches(text), inside(i))
              << low << " " << high << " " << open << " " << i;
        }
        for (int i = -1300; i <= 1300; i += 3) {
          const double x = i / 100.0;
          std::string text = fmt::format("{:.2f}", x);
          if (text == "-0.00") continue;
          ASSERT_EQ(numbers && numbers->matches(text), inside(x))
              << low << " " << high << " " << open << " " << text;
          ASSERT_FALSE(integers && integers->matches(text)) << text;
        }
      }
    }
  }
}

TEST(NumberRange, LargeBounds) {
  const Json low = 0, high = 18446744073709551615ull;
  const auto g = range({&low, &high}, true);
  ASSERT_NE(g, nullptr);
  expect_texts(*g, {"0", "9999999999999999999", "7"}, {"-1", "00", "18446744073709551616000"});
  const Json small = 1e-20, large = 1e300;
  EXPECT_NE(range({&small, &large}, false), nullptr);
  EXPECT_EQ(range({&large, nullptr}, false), nullptr);
}

}  // namespace
}  // namespace pagefold::grammar::test
