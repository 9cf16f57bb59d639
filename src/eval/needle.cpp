#include <algorithm>
#include <array>
#include <cctype>

#include "eval/cases.h"
#include "eval/draws.h"
#include "eval/run.h"

namespace pagefold::eval {
namespace {

constexpr std::array<std::string_view, 24> kCities = {
    "Lisbon",  "Oslo",  "Quito", "Hanoi",  "Cairo", "Perth",  "Turin", "Lagos",
    "Dakar",   "Minsk", "Sofia", "Osaka",  "Tunis", "Bergen", "Porto", "Riga",
    "Nairobi", "Lima",  "Accra", "Zagreb", "Izmir", "Kyoto",  "Malmo", "Cork"};
constexpr std::array<std::string_view, 3> kPlaces = {"start", "middle", "end"};
constexpr std::string_view kRoad =
    "The road is long and straight. The wind is calm. A bird sits on a post. Nothing else "
    "happens. ";

std::vector<std::string> sentences_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('.', at), text.size() - 1);
    out.push_back(text.substr(at, end + 1 - at));
    at = end + 1;
  }
  return out;
}

// Units of a filler so that it has about `want` tokens.
template <class F>
int64_t units_for(int64_t want, const CountTokens& tokens, F text_of) {
  constexpr int64_t kTry = 64;
  const auto per = static_cast<double>(tokens(text_of(kTry))) / kTry;
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(want) / std::max(per, 0.1)));
}

}  // namespace

std::vector<Case> needle_cases(uint64_t seed, int64_t count, const std::vector<int64_t>& contexts,
                               int64_t needles, const CountTokens& tokens) {
  std::vector<Case> out;
  const int64_t n_needles = std::clamp<int64_t>(needles, 1, kCities.size());
  for (int64_t i = 0; i < count; ++i) {
    Draws draws(seed, i);
    const int64_t context = contexts[static_cast<size_t>(i) % contexts.size()];
    const auto place = static_cast<size_t>(i) / contexts.size() % kPlaces.size();
    const auto text_of = [&](int64_t n) { return filler(draws.key(), n); };
    const int64_t want = context - 40 - 20 * n_needles;  // the question and the needles
    std::vector<std::string> hay = sentences_of(text_of(units_for(want, tokens, text_of)));
    const auto n = static_cast<double>(hay.size());
    std::vector<std::string_view> cities(kCities.begin(), kCities.end());
    Case c;
    c.group = fmt::format("{} tokens, {}", context, kPlaces[place]);
    c.expected = Json::array();
    std::string asked;
    std::vector<std::pair<size_t, std::string>> hidden;
    for (int64_t k = 0; k < n_needles; ++k) {
      const auto pick = static_cast<size_t>(draws.below(static_cast<int64_t>(cities.size())));
      const std::string city(cities[pick]);
      cities.erase(cities.begin() + static_cast<std::ptrdiff_t>(pick));
      const std::string value = fmt::format("{}", 10000 + draws.below(90000));
      // A tenth from the edges: the first and last slots are protected by every policy.
      double depth = 0.1 + 0.4 * static_cast<double>(place);
      if (k > 0) depth = 0.05 + 0.9 * static_cast<double>(draws.below(1000)) / 1000;
      hidden.emplace_back(static_cast<size_t>(depth * n),
                          fmt::format(" The secret number of {} is {}.", city, value));
      c.expected.push_back(value);
      asked += (k == 0 ? "" : k + 1 == n_needles ? " and " : ", ") + city;
    }
    std::string text;
    for (size_t s = 0; s < hay.size(); ++s) {
      for (const auto& [at, needle] : hidden) {
        if (at == s) text += needle;
      }
      text += hay[s];
    }
    c.question =
        fmt::format("{}\n\nWhat is the secret number of {}? Answer with the number{} only.", text,
                    asked, n_needles > 1 ? "s" : "");
    out.push_back(std::move(c));
  }
  return out;
}

std::vector<Case> passkey_cases(uint64_t seed, int64_t count, const std::vector<int64_t>& contexts,
                                const CountTokens& tokens) {
  std::vector<Case> out;
  const auto text_of = [](int64_t n) {
    std::string text;
    for (int64_t k = 0; k < n; ++k) text += kRoad;
    return text;
  };
  for (int64_t i = 0; i < count; ++i) {
    Draws draws(seed, i);
    const int64_t context = contexts[static_cast<size_t>(i) % contexts.size()];
    const int64_t units = units_for(context - 60, tokens, text_of);
    const double depth = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    const auto before = static_cast<int64_t>(depth * static_cast<double>(units));
    const std::string key = fmt::format("{}", 10000 + draws.below(90000));
    Case c;
    c.group = fmt::format("{} tokens", context);
    c.expected = Json::array({key});
    c.question = fmt::format(
        "{}The pass key is {}. Remember it: {} is the pass key. {}\n\nWhat is the pass key? Answer "
        "with the number only.",
        text_of(before), key, key, text_of(units - before));
    out.push_back(std::move(c));
  }
  return out;
}

Grade grade_numbers(const Json& expected, std::string_view answer) {
  const auto digit = [&](size_t at) {
    return at < answer.size() && std::isdigit(static_cast<unsigned char>(answer[at])) != 0;
  };
  int64_t found = 0;
  for (const Json& e : expected) {
    const auto number = e.get<std::string>();
    for (size_t at = answer.find(number); at != std::string_view::npos;
         at = answer.find(number, at + 1)) {
      if ((at > 0 && digit(at - 1)) || digit(at + number.size())) continue;
      ++found;
      break;
    }
  }
  Grade g;
  g.score =
      expected.empty() ? 0 : static_cast<double>(found) / static_cast<double>(expected.size());
  return g;
}

}  // namespace pagefold::eval
