#include "cli/numbers.h"

#include <gtest/gtest.h>

#include <string>

namespace pagefold {
namespace {

TEST(HumanCount, PlainAndSuffixes) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"0", 0},
      {"4096", 4096},
      {"1k", 1000},
      {"25.6k", 25600},
      {"25.600k", 25600},
      {"1m", 1000000},
      {"0.000001m", 1},
      {"2g", 2000000000},
      {"1.5t", 1500000000000},
      {"1K", 1024},
      {"8M", 8388608},
      {"2G", 2147483648},
      {"3T", 3298534883328},
      {"18446744073709551615", 18446744073709551615ull},
  };
  for (const auto& [text, value] : cases) {
    const auto parsed = parse_human_count(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status();
    EXPECT_EQ(*parsed, value) << text;
  }
}

TEST(HumanCount, Refused) {
  for (const char* text :
       {"", "k", ".5k", "1.k", "1.5", "1e6", "1.048576e+06", "-1", "+1", " 1", "1 ", "1kk", "0x10",
        "1.2345k", "18446744073709551616", "18446744073709552k", "16777216T", "1_000", "1.5.5k"}) {
    EXPECT_FALSE(parse_human_count(text).ok()) << text;
  }
}

TEST(HumanCount, DecimalWithUpperCaseSuggestsLowerCase) {
  const auto parsed = parse_human_count("25.6K");
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.status().message().find("'k'"), absl::string_view::npos) << parsed.status();
}

TEST(Integer, WholeWordOnly) {
  EXPECT_EQ(*parse_integer("-12"), -12);
  EXPECT_EQ(*parse_integer("9223372036854775807"), 9223372036854775807ll);
  for (const char* text : {"", "-", "1.0", "12x", "9223372036854775808"}) {
    EXPECT_FALSE(parse_integer(text).ok()) << text;
  }
}

TEST(Integer, FaultsNameTheRange) {
  for (const char* text : {"x", "0", "10", "9223372036854775808"}) {
    EXPECT_EQ(parse_integer(text, 1, 9).status().message(),
              fmt::format("'{}': must be an integer from 1 to 9", text));
  }
  for (const char* text : {"0", "1k", "18446744073709551616", "16777216T"}) {
    EXPECT_EQ(parse_human_count(text, 1, 999).status().message(),
              fmt::format("'{}': must be an integer from 1 to 999", text));
  }
  EXPECT_EQ(*parse_human_count("999", 1, 999), 999u);
  EXPECT_EQ(*parse_human_count("1", 1, 999), 1u);
}

TEST(Real, WholeWordOnlyAndFinite) {
  EXPECT_EQ(*parse_real("0.7"), 0.7);
  EXPECT_EQ(*parse_real("1e-5"), 1e-5);
  for (const char* text : {"", "nan", "inf", "0.7f", "1,5", "1e999"}) {
    EXPECT_FALSE(parse_real(text).ok()) << text;
  }
}

TEST(Format, CommasAndBytes) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(2.0 * (1 << 30)), "2 GiB");
}

}  // namespace
}  // namespace pagefold
