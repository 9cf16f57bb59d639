#include <array>
#include <string_view>

#include "base/random.h"
#include "eval/run.h"

namespace pagefold::eval {
namespace {

constexpr std::array<std::string_view, 10> kWho = {
    "The gardener", "A tired clerk", "My neighbour", "The ferry pilot", "An old teacher",
    "The baker",    "Her cousin",    "The surveyor", "A young painter", "The night guard"};
constexpr std::array<std::string_view, 10> kDid = {
    "walked past",  "looked for", "wrote about",  "repaired",        "painted",
    "talked about", "measured",   "swept around", "quietly admired", "forgot about"};
constexpr std::array<std::string_view, 10> kWhat = {
    "the wooden bridge", "a row of lamps",  "the empty market",  "two grey boats",
    "the long stairway", "a broken clock",  "the apple orchard", "the painted gate",
    "a pile of letters", "the narrow canal"};
constexpr std::array<std::string_view, 8> kWhen = {
    "before the rain began",   "late in the evening",         "while the bells rang",
    "on the first day of May", "without saying a word",       "after the shop closed",
    "as the fog lifted",       "for the third time that week"};

}  // namespace

std::string filler(uint64_t seed, int64_t count) {
  std::string out;
  uint64_t draw = 0;
  const auto pick = [&](const auto& words) {
    const auto n = static_cast<double>(words.size());
    return words[static_cast<size_t>(uniform01(seed, draw++) * n)];
  };
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) out += i % 7 == 0 ? "\n" : " ";
    out += fmt::format("{} {} {} {}.", pick(kWho), pick(kDid), pick(kWhat), pick(kWhen));
  }
  return out;
}

}  // namespace pagefold::eval
