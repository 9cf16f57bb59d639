// Layers that read another's cache, indexers on some layers, and models by hand of every kind:
// formulas worked by hand.
#include <gmock/gmock.h>

#include <functional>

#include "api/calc_cases.h"

namespace pagefold::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

CalcRequest latent_by_hand(int64_t layers, int64_t tokens) {
  CalcRequest q;
  q.shape.layers = layers;
  q.shape.latent = 512;
  q.shape.rope_dim = 64;
  q.tokens = tokens;
  return q;
}

// A decoder of windows, and above it layers that share one global cache (YOCO, arXiv 2405.05254):
// of 32 layers 16 have windows, one stores for the upper half.
TEST(CalcShapes, OneCacheForTheUpperHalf) {
  CalcRequest q = by_hand(32, 8, 128, 10000);
  q.shape.window = 1024;
  q.shape.window_layers = 16;
  q.shape.shared_layers = 15;
  const CalcResult r = calculated(q);
  constexpr uint64_t kSlot = 8 * (128 + 128) * 2;
  EXPECT_EQ(r.kv.bytes_per_token, 17 * kSlot);
  EXPECT_EQ(r.kv.ideal_bytes, kSlot * (16 * 1024 + 10000));
  EXPECT_EQ(r.kv.full_attention_bytes, kSlot * 17 * 10000);
  // 625 blocks of 16; slots 8976 ... 9999 lie in 64 whole blocks.
  EXPECT_EQ(r.kv.allocated_bytes, kSlot * 16 * (16 * 64 + 625));
  EXPECT_EQ(r.layers, 32);
  ASSERT_EQ(r.groups.size(), 3u);
  EXPECT_EQ(r.groups[2].kind, "none");
  EXPECT_EQ(r.groups[2].layers, 15);
  EXPECT_FALSE(r.runs_here);
  EXPECT_THAT(r.not_run_because, HasSubstr("share a cache"));
  // Without a window: the layers that store are full.
  q.shape.window.reset();
  q.shape.window_layers.reset();
  EXPECT_EQ(calculated(q).kv.ideal_bytes, kSlot * 17 * 10000);
}

TEST(CalcShapes, LatentByHand) {
  CalcRequest q = latent_by_hand(61, 1000);
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * 576 * 2);
  EXPECT_FALSE(calculated(q).runs_here);
  q.shape.index_dim = 128;
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * (576 + 128) * 2);
  q.shape.index_layers = 20;
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 2u * (61 * 576 + 20 * 128));
  EXPECT_EQ(calculated(q).kv.ideal_bytes, 2000u * (61 * 576 + 20 * 128));
  // 63 blocks of 16.
  EXPECT_EQ(calculated(q).kv.allocated_bytes, 2016u * (61 * 576 + 20 * 128));
  q.tensor_parallel_size = 8;  // copied to each
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 2u * (61 * 576 + 20 * 128));
  q.shape.heads = 128;
  q.shape.nope_dim = 128;
  q.shape.v_head_dim = 128;
  q.mla = "expanded";  // 16 heads of each rank
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 2u * (61 * 16 * (192 + 128) + 20 * 128));
}

const Json kIndexed = {{"model_type", "glm_moe_dsa"}, {"num_hidden_layers", 78},
                       {"hidden_size", 6144},         {"num_attention_heads", 64},
                       {"num_key_value_heads", 64},   {"kv_lora_rank", 512},
                       {"qk_rope_head_dim", 64},      {"qk_nope_head_dim", 192},
                       {"v_head_dim", 256},           {"index_head_dim", 128}};

uint64_t indexed_bytes(const Json& more) {
  Json config = kIndexed;
  config.update(more);
  return calculated(of_config(config, 1000)).kv.bytes_per_token;
}

TEST(CalcShapes, IndexersOnSomeLayers) {
  const auto bytes = [](int64_t own) { return static_cast<uint64_t>(2 * (78 * 576 + own * 128)); };
  EXPECT_EQ(indexed_bytes(Json::object()), bytes(78));
  // Layers 0, 1, 2, 6, 10 ... 74.
  EXPECT_EQ(indexed_bytes({{"index_topk_freq", 4}, {"index_skip_topk_offset", 3}}), bytes(21));
  // Layers 0, 1, 5, 9 ... 77: the offset is 2 where none is said.
  EXPECT_EQ(indexed_bytes({{"index_topk_freq", 4}}), bytes(21));
  EXPECT_EQ(indexed_bytes({{"index_topk_freq", 1}}), bytes(78));
  std::string letters(78, 'S');
  letters[0] = letters[7] = 'F';
  EXPECT_EQ(indexed_bytes({{"index_topk_pattern", letters}, {"index_topk_freq", 4}}), bytes(2));
  Json types = Json::array();
  for (int i = 0; i < 78; ++i) types.push_back(i < 5 ? "full" : "shared");
  EXPECT_EQ(indexed_bytes({{"indexer_types", types}, {"index_topk_pattern", letters}}), bytes(5));
  EXPECT_EQ(indexed_bytes({{"index_topk_pattern", types}}), bytes(5));
  EXPECT_EQ(indexed_bytes({{"index_topk_freq", 4}, {"index_head_dim", nullptr}}), bytes(0));
}

TEST(CalcShapes, DraftHeadsHaveIndexers) {
  Json config = kIndexed;
  config["index_topk_freq"] = 4;
  config["num_nextn_predict_layers"] = 1;
  EXPECT_EQ(calculated(of_config(config, 100)).kv.draft_bytes_per_token, 2u * (576 + 128));
}

TEST(CalcShapes, EachLatentLayerPaysItsOwnUnderVllmsRules) {
  CalcRequest q = latent_by_hand(61, 1000);
  q.shape.index_dim = 128;
  q.shape.index_layers = 20;
  q.engine = "vllm";
  EXPECT_EQ(calculated(q).kv.allocated_bytes, 2016u * (61 * 576 + 20 * 128));
  EXPECT_THAT(calculated(q).formula, HasSubstr("pages of 16 tokens = "));
}

TEST(CalcShapes, ShapesThatMakeNoSense) {
  const std::vector<std::pair<std::string, std::function<void(CalcShape&)>>> cases = {
      {"--shared-layers: must be below the 61", [](CalcShape& s) { s.shared_layers = 61; }},
      {"--shared-layers: must be below", [](CalcShape& s) { s.shared_layers = -1; }},
      {"--index-layers: needs --index-dim", [](CalcShape& s) { s.index_layers = 3; }},
      {"--index-layers: must be an integer from 1 to 61",
       [](CalcShape& s) {
         s.index_dim = 128;
         s.index_layers = 62;
       }},
      {"--index-layers: must be an integer from 1 to 60",
       [](CalcShape& s) {
         s.shared_layers = 1;
         s.index_dim = 128;
         s.index_layers = 61;
       }},
      {"--index-layers: must be an integer",
       [](CalcShape& s) {
         s.index_dim = 128;
         s.index_layers = 0;
       }},
      {"index_head_dim is -1", [](CalcShape& s) { s.index_dim = -1; }},
      {"kv_lora_rank is 0", [](CalcShape& s) { s.latent = 0; }},
      {"qk_rope_head_dim is -2", [](CalcShape& s) { s.rope_dim = -2; }},
      {"in place of --kv-heads", [](CalcShape& s) { s.kv_heads = 8; }},
      {"in place of --kv-heads", [](CalcShape& s) { s.head_dim = 64; }},
      {"in place of --kv-heads", [](CalcShape& s) { s.window = 64; }},
      {"go with --latent",
       [](CalcShape& s) {
         s.latent.reset();
         s.kv_heads = s.head_dim = 8;
       }},
      {"--kv-heads with --head-dim or --latent",
       [](CalcShape& s) {
         s.latent.reset();
         s.kv_heads = 8;
       }},
  };
  for (const auto& [part, change] : cases) {
    CalcRequest q = latent_by_hand(61, 100);
    change(q.shape);
    const auto r = calculate(q);
    ASSERT_FALSE(r.ok()) << part;
    EXPECT_THAT(std::string(r.status().message()), HasSubstr(part));
  }
  for (const auto& [part, more] : std::vector<std::pair<std::string, Json>>{
           {"'indexer_types' has 1 entries for 78 layers", {{"indexer_types", {"full"}}}},
           {"'index_topk_pattern' has 3 entries", {{"index_topk_pattern", "FSS"}}},
           {"unknown entry 'X'", {{"index_topk_pattern", std::string(78, 'X')}}},
           {"'index_topk_pattern' must be a string", {{"index_topk_pattern", 4}}},
           {"'index_topk_freq' must be an integer from 1 to", {{"index_topk_freq", 0}}}}) {
    Json config = kIndexed;
    config.update(more);
    const auto r = calculate(of_config(config, 100));
    ASSERT_FALSE(r.ok()) << part;
    EXPECT_THAT(std::string(r.status().message()), HasSubstr(part));
  }
}

TEST(CalcShapes, EveryFieldOfAShapeIsReadFromJson) {
  const auto q = calc_request_from_json(R"({"shape": {"layers": 61, "latent": 512, "rope_dim": 64,
      "index_dim": 128, "index_layers": 20, "shared_layers": 1, "nope_dim": 128, "heads": 16,
      "v_head_dim": 128}, "tokens": 1000, "mla": "expanded"})");
  ASSERT_TRUE(q.ok()) << q.status();
  EXPECT_EQ(calculated(*q).kv.bytes_per_token, 2u * (60 * 16 * (192 + 128) + 20 * 128));
}

// Without statistics a prefix is held fast: min(128, budget / 4) slots in place of 4 sinks, beside
// 128 recent ones.
TEST(CalcShapes, BudgetsThatNeedStatisticsAreToldApart) {
  CalcRequest q = by_hand(4, 2, 64, 1000);
  const auto noted = [&](const char* budget) {
    q.kv = {{"policy", "triattention"}, {"budget", budget}};
    return calculated(q).notes;
  };
  const auto says = Contains(HasSubstr("without query statistics"));
  EXPECT_THAT(noted("132"), says);
  EXPECT_THAT(noted("169"), says);
  EXPECT_THAT(noted("170"), Not(says));
  q.kv["budget"] = "131";
  EXPECT_FALSE(calculate(q).ok());
  q.kv = {{"policy", "triattention"}, {"budget", "132"}, {"calibration", "mine"}};
  EXPECT_THAT(calculated(q).notes, Not(says));
  q.kv["calibration"] = "self";
  EXPECT_FALSE(calculate(q).ok());
}

}  // namespace
}  // namespace pagefold::testing
