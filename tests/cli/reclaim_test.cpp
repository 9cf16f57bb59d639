#include "cli/reclaim.h"

#include <gtest/gtest.h>

#include <map>

namespace pagefold {
namespace {

std::map<std::string, ReclaimRow> rows_of(const ReclaimCommand& c) {
  const auto rows = measure_reclaim(c);
  EXPECT_TRUE(rows.ok()) << rows.status();
  std::map<std::string, ReclaimRow> out;
  for (const ReclaimRow& r : *rows) out[r.packing + " " + r.survivors] = r;
  return out;
}

TEST(Reclaim, OnePackingOrOneKindOfSurvivors) {
  ReclaimCommand c;
  c.kv_heads = 1;
  c.packing = "off";
  EXPECT_EQ(rows_of(c).size(), 3u);
  c.survivors = "random";
  EXPECT_EQ(rows_of(c).size(), 1u);
  EXPECT_EQ(rows_of(c).count("off random"), 1u);
}

TEST(Reclaim, TheExampleOfTheReadme) {
  ReclaimCommand c;
  c.kv_heads = 1;
  auto rows = rows_of(c);
  ASSERT_EQ(rows.size(), 12u);
  for (const auto& [name, r] : rows) {
    EXPECT_EQ(r.tokens, 16000) << name;
    EXPECT_EQ(r.kept, 1600) << name;
    EXPECT_EQ(r.blocks_before, 1000) << name;
    EXPECT_EQ(r.blocks_after, 1000 - r.blocks_freed) << name;
    // 16 slots x 64 values x 2 bytes x (K and V): a page
    EXPECT_EQ(r.bytes_released, static_cast<uint64_t>(r.blocks_freed) * 4096) << name;
    if (r.packing != "off") {
      EXPECT_EQ(r.blocks_freed, 900) << name;
    }
    if (r.packing == "off" || r.packing == "block") {
      EXPECT_EQ(r.tokens_moved, 0) << name;
    }
  }
  EXPECT_EQ(rows["off scattered"].blocks_freed, 0);
  // 0.9^16 of the blocks; three standard deviations
  EXPECT_NEAR(static_cast<double>(rows["off random"].blocks_freed), 185.0, 37.0);
  // ten runs of 160 touch ten or eleven blocks each
  EXPECT_GE(rows["off clustered"].blocks_freed, 890);
  EXPECT_EQ(rows["order scattered"].tokens_moved, 1599);  // slot 0 stays
  EXPECT_EQ(rows["fill scattered"].tokens_moved, 1440);   // 160 of the first 1,600 survive
}

TEST(Reclaim, SharedTablesFreeNothingWithoutPacking) {
  ReclaimCommand c;
  c.layout = "shared";
  c.kv_heads = 8;
  auto rows = rows_of(c);
  EXPECT_EQ(rows["off random"].blocks_before, 1000);
  EXPECT_LE(rows["off random"].blocks_freed, 2);  // 0.9^128
  EXPECT_EQ(rows["order random"].blocks_freed, 900);
  EXPECT_EQ(rows["fill random"].blocks_freed, 900);
  EXPECT_EQ(rows["block random"].blocks_freed, 900);
  EXPECT_EQ(rows["order random"].bytes_released, 900u * 8 * 4096);
}

TEST(Reclaim, ManyTablesOfAnotherShape) {
  ReclaimCommand c;
  c.tokens = 1000;  // not whole blocks
  c.layers = 3;
  c.kv_heads = 2;
  c.head_dim = 24;
  c.block_size = 32;
  c.keep = 0.25;
  c.kv.k = "float32";
  auto rows = rows_of(c);
  EXPECT_EQ(rows["order random"].blocks_before, 32 * 6);
  EXPECT_EQ(rows["order random"].blocks_after, 8 * 6);  // 250 slots
  EXPECT_EQ(rows["fill scattered"].blocks_after, 8 * 6);
  EXPECT_EQ(rows["off scattered"].blocks_freed, 0);
}

TEST(Reclaim, SurvivorsAreAsManyAsAskedAndAscending) {
  for (const char* kind : {"clustered", "random", "scattered"}) {
    for (const int64_t kept : {1, 159, 500, 999, 1000}) {
      const auto s = pick_survivors(kind, 1000, kept, 7);
      ASSERT_EQ(static_cast<int64_t>(s.size()), kept) << kind;
      for (size_t i = 0; i < s.size(); ++i) {
        ASSERT_TRUE(s[i] >= 0 && s[i] < 1000 && (i == 0 || s[i] > s[i - 1])) << kind;
      }
    }
  }
}

TEST(Reclaim, RefusesWhatCannotFit) {
  ReclaimCommand c;
  c.kv_heads = 1;
  c.tokens = int64_t{1} << 40;
  EXPECT_FALSE(measure_reclaim(c).ok());
}

}  // namespace
}  // namespace pagefold
