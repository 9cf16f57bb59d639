// A number is compared with a bound digit by digit: as long as its digits equal the bound's it is
// "tight"; the first smaller or larger digit settles the comparison and the rest is free.
#include "grammar/number_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace pagefold::grammar {
namespace {

constexpr size_t kFractionDigits = 15, kWholeDigits = 15, kMostWholeDigits = 19;

struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;  // no zeros in front of or behind the digits that count
  bool zero() const { return whole == "0" && fraction.empty(); }
};

Decimal decimal_of(const Json& number) {
  std::string text;
  if (number.is_number_float()) {
    const double value = number.get<double>();
    text = fmt::format("{}", value);
    if (text.find('e') != std::string::npos) text = fmt::format("{:.15f}", value);
  } else {
    text = dump_json(number);
  }
  Decimal d;
  d.negative = text.starts_with('-');
  if (d.negative) text.erase(0, 1);
  const size_t point = std::min(text.find('.'), text.size());
  d.whole = text.substr(0, point);
  if (point < text.size()) d.fraction = text.substr(point + 1);
  while (d.fraction.ends_with('0')) d.fraction.pop_back();
  if (d.zero()) d.negative = false;
  return d;
}

struct Bound {
  Decimal value;  // its size; the sign is settled
  bool open = false;
};

// Sizes (numbers without a sign) between two bounds.
class Sizes {
 public:
  Sizes(Grammar& grammar, Bound low, std::optional<Bound> high, bool integer)
      : g_(grammar), low_(std::move(low)), high_(std::move(high)), integer_(integer) {}

  ExprId expr() {
    const size_t shortest = low_.value.whole.size();
    const size_t longest =
        high_ ? std::min(high_->value.whole.size(), kMostWholeDigits) : kWholeDigits;
    std::vector<ExprId> lengths;
    for (size_t n = shortest; n <= longest; ++n) {
      const bool tight_low = n == shortest;
      const bool tight_high = high_ && n == high_->value.whole.size();
      lengths.push_back(whole(0, n, tight_low, tight_high));
    }
    return g_.alt(std::move(lengths));
  }

 private:
  ExprId digit(char first, char last) {
    return g_.bytes(
        byte_range(static_cast<unsigned char>(first), static_cast<unsigned char>(last)));
  }
  // One digit between the bounds' own, then what `rest(tight_low, tight_high)` gives.
  template <class Rest>
  ExprId step(char low, char high, bool tight_low, bool tight_high, Rest rest) {
    if (low > high) return g_.never();
    if (tight_low && tight_high && low == high) {
      return g_.seq({digit(low, low), rest(true, true)});
    }
    std::vector<ExprId> branches;
    char first = low, last = high;
    if (tight_low) branches.push_back(g_.seq({digit(first, first), rest(true, false)}));
    if (tight_low) ++first;
    if (tight_high) branches.push_back(g_.seq({digit(last, last), rest(false, true)}));
    if (tight_high) --last;
    if (first <= last) branches.push_back(g_.seq({digit(first, last), rest(false, false)}));
    return g_.alt(std::move(branches));
  }

  // Digits i, i + 1 ... of n before the point.
  ExprId whole(size_t i, size_t n, bool tight_low, bool tight_high) {
    if (i == n) return after_whole(tight_low, tight_high);
    const char least = i == 0 && n > 1 ? '1' : '0';
    if (!tight_low && !tight_high) {
      const int left = static_cast<int>(n - i - 1);
      return g_.seq(
          {digit(least, '9'), g_.repeat(digit('0', '9'), left, left), after_whole(false, false)});
    }
    const char low = tight_low ? std::max(low_.value.whole[i], least) : least;
    const char high = tight_high ? high_->value.whole[i] : '9';
    return step(low, high, tight_low, tight_high,
                [&](bool l, bool h) { return whole(i + 1, n, l, h); });
  }

  ExprId after_whole(bool tight_low, bool tight_high) {
    std::vector<ExprId> branches;
    if (may_end(0, tight_low, tight_high)) branches.push_back(g_.empty());
    if (!integer_) {
      branches.push_back(g_.seq({g_.literal("."), fraction(0, tight_low, tight_high)}));
    }
    return g_.alt(std::move(branches));
  }

  // Digits j, j + 1 ... after the point, at least one.
  ExprId fraction(size_t j, bool tight_low, bool tight_high) {
    if (j == kFractionDigits) return g_.never();
    if (!tight_low && !tight_high) {
      return g_.repeat(digit('0', '9'), 1, static_cast<int>(kFractionDigits - j));
    }
    const auto at = [j](const Decimal& d) { return j < d.fraction.size() ? d.fraction[j] : '0'; };
    const char low = tight_low ? at(low_.value) : '0', high = tight_high ? at(high_->value) : '9';
    return step(low, high, tight_low, tight_high, [&](bool l, bool h) {
      const ExprId more = fraction(j + 1, l, h);
      return may_end(j + 1, l, h) ? g_.alt({g_.empty(), more}) : more;
    });
  }

  // The number may end after j digits behind the point.
  bool may_end(size_t j, bool tight_low, bool tight_high) const {
    if (tight_low && (j < low_.value.fraction.size() || low_.open)) return false;
    return !(tight_high && j >= high_->value.fraction.size() && high_->open);
  }

  Grammar& g_;
  const Bound low_;
  const std::optional<Bound> high_;
  const bool integer_;
};

}  // namespace

ExprId number_range(Grammar& g, const NumberBounds& bounds, bool integer) {
  std::optional<Bound> low, high;
  if (bounds.low) low = Bound{decimal_of(*bounds.low), bounds.low_open};
  if (bounds.high) high = Bound{decimal_of(*bounds.high), bounds.high_open};
  std::vector<ExprId> signs;
  if (!high || !high->value.negative) {
    const bool from_zero = !low || low->value.negative;
    signs.push_back(Sizes(g, from_zero ? Bound{} : *low, high, integer).expr());
  }
  if (!low || low->value.negative) {
    // Below zero sizes are turned round; zero itself is written without a sign.
    const Bound least = high && high->value.negative ? *high : Bound{Decimal{}, true};
    signs.push_back(g.seq({g.literal("-"), Sizes(g, least, low, integer).expr()}));
  }
  return g.alt(std::move(signs));
}

}  // namespace pagefold::grammar
