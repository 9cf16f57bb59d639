// Every kind of attention against its formula worked by hand.
#include "api/calc_cases.h"

namespace pagefold::testing {
namespace {

const Json kGqa = {{"architectures", {"LlamaForCausalLM"}},
                   {"model_type", "llama"},
                   {"num_hidden_layers", 16},
                   {"hidden_size", 2048},
                   {"num_attention_heads", 32},
                   {"num_key_value_heads", 8},
                   {"intermediate_size", 8192},
                   {"vocab_size", 128256},
                   {"max_position_embeddings", 131072},
                   {"torch_dtype", "bfloat16"},
                   {"tie_word_embeddings", true}};

Json with(Json config, const Json& more) {
  config.update(more);
  return config;
}

TEST(CalcFormulas, GroupedHeadsInFp8) {
  CalcRequest q = of_config(kGqa, 32768);
  q.sequences = 4;
  q.kv_cache_dtype = "fp8";
  const CalcResult r = calculated(q);
  // 16 layers x 8 heads x (64 + 64) bytes; head_dim = 2048 / 32.
  EXPECT_EQ(r.kv.bytes_per_token, 16384u);
  EXPECT_EQ(r.kv.ideal_bytes, 16384u * 32768 * 4);
  EXPECT_EQ(r.kv.allocated_bytes, 16384u * 32768 * 4);  // whole blocks
  EXPECT_EQ(r.kv.steady_bytes, r.kv.allocated_bytes);
  EXPECT_EQ(r.kv.peak_bytes, r.kv.allocated_bytes);
  EXPECT_TRUE(r.runs_here) << r.not_run_because;
  // q, k, v, o, gate, up, down, two norms a layer; a tied table and the last norm.
  constexpr uint64_t kLayer = 2048ull * (2048 + 512 + 512 + 2048 + 3 * 8192) + 2 * 2048;
  EXPECT_EQ(r.weights_bytes, 2 * (16 * kLayer + 128256ull * 2048 + 2048));
}

TEST(CalcFormulas, EveryHeadItsOwnAndOneForAll) {
  const CalcResult mha = calculated(of_config(with(kGqa, {{"num_key_value_heads", nullptr}}), 100));
  EXPECT_EQ(mha.kv.bytes_per_token, 16u * 32 * 2 * 64 * 2);
  const CalcResult mqa = calculated(of_config({{"model_type", "falcon"},
                                               {"num_hidden_layers", 32},
                                               {"hidden_size", 4544},
                                               {"num_attention_heads", 71},
                                               {"multi_query", true}},
                                              100));
  EXPECT_EQ(mqa.kv.bytes_per_token, 32u * 1 * 2 * 64 * 2);
  EXPECT_FALSE(mqa.runs_here);
}

TEST(CalcFormulas, BlocksAreRoundedUpForEveryTable) {
  CalcRequest q = of_config(kGqa, 1001);
  q.block_size = 64;
  // 1001 tokens: 16 blocks of 64 slots of 16 x 8 tables; a slot is 2 x 64 x 2 bytes.
  EXPECT_EQ(calculated(q).kv.allocated_bytes, 16u * 64 * 16 * 8 * 256);
  q.kv_cache_dtype = "int8";  // 64 + 2 bytes a row
  EXPECT_EQ(calculated(q).kv.allocated_bytes, 16u * 64 * 16 * 8 * 132);
  EXPECT_EQ(calculated(q).kv.ideal_bytes, 1001u * 16 * 8 * 132);
  q.kv_cache_dtype_v = "int4";  // 32 + 4
  EXPECT_EQ(calculated(q).kv.allocated_bytes, 16u * 64 * 16 * 8 * (66 + 36));
  q.kv_cache_group = 32;  // two scales a row of 64
  EXPECT_EQ(calculated(q).kv.allocated_bytes, 16u * 64 * 16 * 8 * (68 + 40));
  q.kv_cache_dtype = q.kv_cache_dtype_v = "int4";
  q.kv_cache_group = 0;
  EXPECT_EQ(calculated(q).kv.allocated_bytes, 16u * 64 * 16 * 8 * (36 + 36));
  q.kv_cache_group = CalcRequest().kv_cache_group;  // keys of 4 bits: groups of 32
  EXPECT_EQ(calculated(q).kv.allocated_bytes, 16u * 64 * 16 * 8 * (40 + 40));
}

TEST(CalcFormulas, SlidingWindows) {
  // Gemma 3: layers 6 and 12 of 13 are full.
  const Json config = {{"model_type", "gemma3"},
                       {"text_config",
                        {{"model_type", "gemma3_text"},
                         {"num_hidden_layers", 13},
                         {"hidden_size", 640},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 1},
                         {"head_dim", 256},
                         {"sliding_window", 512}}}};
  const CalcResult r = calculated(of_config(config, 10000));
  constexpr uint64_t kSlot = 2 * 256 * 2;
  EXPECT_EQ(r.kv.ideal_bytes, kSlot * (2 * 10000 + 11 * 512));
  EXPECT_EQ(r.kv.full_attention_bytes, kSlot * 13 * 10000);
  // Blocks of 16: 625 full ones; of a window, slots 9488 ... 9999 lie in 32 whole blocks.
  EXPECT_EQ(r.kv.allocated_bytes, kSlot * 16 * (2 * 625 + 11 * 32));
  // One token more: a new block, and the window's first one still holds a slot of it.
  EXPECT_EQ(calculated(of_config(config, 10001)).kv.allocated_bytes,
            kSlot * 16 * (2 * 626 + 11 * 33));
  // The widest moment: a chunk of 512 beyond a full window.
  CalcRequest chunked = of_config(config, 10240);
  chunked.prompt_tokens = 10240;
  EXPECT_EQ(calculated(chunked).kv.peak_bytes, kSlot * 16 * (2 * 640 + 11 * 64));
  // layer_types wins over the pattern; a window of null is none.
  Json types = Json::array();
  for (int i = 0; i < 13; ++i) types.push_back(i == 0 ? "full_attention" : "sliding_attention");
  Json listed = config;
  listed["text_config"]["layer_types"] = types;
  EXPECT_EQ(calculated(of_config(listed, 10000)).kv.ideal_bytes, kSlot * (10000 + 12 * 512));
  const Json mistral = with(kGqa, {{"model_type", "mistral"},
                                   {"architectures", {"MistralForCausalLM"}},
                                   {"sliding_window", nullptr}});
  EXPECT_EQ(calculated(of_config(mistral, 10000)).kv.ideal_bytes, 10000u * 16 * 8 * 256);
}

TEST(CalcFormulas, LocalChunks) {
  const CalcResult r = calculated(of_config({{"model_type", "llama4_text"},
                                             {"num_hidden_layers", 8},
                                             {"hidden_size", 5120},
                                             {"num_attention_heads", 40},
                                             {"num_key_value_heads", 8},
                                             {"head_dim", 128}},
                                            20000));
  EXPECT_EQ(r.kv.ideal_bytes, 8u * 2 * 128 * 2 * (6 * 8192 + 2 * 20000));
}

const Json kLatent = {
    {"model_type", "deepseek_v3"}, {"num_hidden_layers", 61},    {"hidden_size", 7168},
    {"num_attention_heads", 128},  {"num_key_value_heads", 128}, {"kv_lora_rank", 512},
    {"qk_rope_head_dim", 64},      {"qk_nope_head_dim", 128},    {"v_head_dim", 128}};

TEST(CalcFormulas, LatentInItsForms) {
  CalcRequest q = of_config(kLatent, 1000);
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * 576 * 2);
  q.mla = "packed_fp8";  // 512 + 4 x 4 + 64 x 2
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * 656);
  q.mla = "expanded";
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * 128 * (192 + 128) * 2);
  q.mla = "latent";
  q.config_json =
      dump_json(with(kLatent, {{"model_type", "deepseek_v32"}, {"index_head_dim", 128}}));
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * (576 + 128) * 2);
}

TEST(CalcFormulas, RanksShareHeadsButNotALatent) {
  CalcRequest q = of_config(kLatent, 1000);
  q.tensor_parallel_size = 8;
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * 576 * 2);
  q = of_config(kGqa, 1000);
  const auto heads = [&](int64_t ranks) {
    q.tensor_parallel_size = ranks;
    return calculated(q).kv.bytes_per_token / (16 * 256);
  };
  EXPECT_EQ(heads(1), 8u);
  EXPECT_EQ(heads(2), 4u);
  EXPECT_EQ(heads(3), 3u);   // one rank has two, the widest counts
  EXPECT_EQ(heads(16), 1u);  // copied
}

TEST(CalcFormulas, LayersThatShareOrStoreNothing) {
  // Gemma 3n: each fifth layer is full, the last three read others.
  const CalcResult shared = calculated(of_config({{"model_type", "gemma3n_text"},
                                                  {"num_hidden_layers", 10},
                                                  {"hidden_size", 2048},
                                                  {"num_attention_heads", 8},
                                                  {"num_key_value_heads", 2},
                                                  {"head_dim", 256},
                                                  {"sliding_window", 512},
                                                  {"num_kv_shared_layers", 3}},
                                                 4096));
  EXPECT_EQ(shared.kv.ideal_bytes, 2u * 2 * 256 * 2 * (6 * 512 + 1 * 4096));
  const CalcResult cla = calculated(of_config({{"model_type", "hunyuan"},
                                               {"num_hidden_layers", 64},
                                               {"hidden_size", 6400},
                                               {"num_attention_heads", 80},
                                               {"num_key_value_heads", 8},
                                               {"head_dim", 128},
                                               {"use_cla", true},
                                               {"cla_share_factor", 2}},
                                              100));
  EXPECT_EQ(cla.kv.bytes_per_token, 32u * 8 * 2 * 128 * 2);
}

TEST(CalcFormulas, StatesOfFixedSize) {
  CalcRequest q = of_config({{"model_type", "qwen3_next"},
                             {"num_hidden_layers", 8},
                             {"hidden_size", 2048},
                             {"num_attention_heads", 16},
                             {"num_key_value_heads", 2},
                             {"head_dim", 256},
                             {"linear_num_key_heads", 16},
                             {"linear_key_head_dim", 128},
                             {"linear_num_value_heads", 32},
                             {"linear_value_head_dim", 128},
                             {"linear_conv_kernel_dim", 4}},
                            5000);
  constexpr uint64_t kState = 3 * (2 * 16 * 128 + 32 * 128) * 2 + 32 * 128 * 128 * 4;
  EXPECT_EQ(calculated(q).kv.ideal_bytes, 2u * 2 * 2 * 256 * 2 * 5000);
  EXPECT_EQ(calculated(q).kv.state_bytes, 6 * kState);
  q.state_snapshots = 3;
  q.sequences = 2;
  EXPECT_EQ(calculated(q).kv.state_bytes, 6 * kState * 4 * 2);
  const CalcResult mamba = calculated(of_config({{"model_type", "nemotron_h"},
                                                 {"num_hidden_layers", 6},
                                                 {"hidden_size", 2688},
                                                 {"num_attention_heads", 32},
                                                 {"num_key_value_heads", 2},
                                                 {"head_dim", 128},
                                                 {"hybrid_override_pattern", "MEM*E-"},
                                                 {"mamba_num_heads", 64},
                                                 {"mamba_head_dim", 64},
                                                 {"n_groups", 8},
                                                 {"ssm_state_size", 128},
                                                 {"conv_kernel", 4}},
                                                5000));
  EXPECT_EQ(mamba.kv.ideal_bytes, 1u * 2 * 2 * 128 * 2 * 5000);
  EXPECT_EQ(mamba.kv.state_bytes, 2u * (3 * (4096 + 2 * 8 * 128) * 2 + 4096 * 128 * 4));
}

TEST(CalcFormulas, StatesOfAnotherType) {
  CalcRequest q;
  q.model = "qwen3-next-80b-a3b-instruct";
  q.tokens = 1000;
  q.state_dtype = "bfloat16";
  // 36 layers: 3 x (2 x 16 x 128 + 32 x 128) of 2 bytes, and 32 x 128 x 128 of 2 in place of 4.
  EXPECT_EQ(calculated(q).kv.state_bytes, 36u * (3 * 8192 * 2 + 524288 * 2));
  q.state_dtype = "fp3";
  EXPECT_FALSE(calculate(q).ok());
}

TEST(CalcFormulas, AnIndexersKeysOfTheirOwnType) {
  CalcRequest q;
  q.model = "deepseek-v3.2";
  q.tokens = 1000;
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * (576 * 2 + 128 * 2));
  q.index_dtype = "fp8";
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * (576 * 2 + 128));
  q.mla = "packed_fp8";  // 656 bytes, the indexer beside it
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * (656 + 128));
  q.mla = "expanded";
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * (128 * (192 + 128) * 2 + 128));
}

TEST(CalcFormulas, DraftHeadsAreALineOfTheirOwn) {
  CalcRequest q;
  q.model = "deepseek-v3";  // one layer of draft heads, latent as the others
  q.tokens = 1024;
  EXPECT_EQ(calculated(q).kv.draft_bytes_per_token, 576u * 2);
  EXPECT_EQ(calculated(q).kv.ideal_bytes, 61u * 1152 * 1024);
  q.draft_layers = true;
  EXPECT_EQ(calculated(q).kv.draft_bytes_per_token, 576u * 2);
  EXPECT_EQ(calculated(q).kv.ideal_bytes, 62u * 1152 * 1024);
  q.model = "qwen3-8b";
  EXPECT_EQ(calculated(q).kv.draft_bytes_per_token, 0u);
  Json config = kGqa;
  config["num_nextn_predict_layers"] = 2;
  EXPECT_EQ(calculated(of_config(config, 100)).kv.draft_bytes_per_token, 2u * 8 * 2 * 64 * 2);
}

// Section 3 of the notes on calculators: max(1, ceil(KV heads / ranks)) heads, latents copied.
TEST(CalcFormulas, RanksShareHeadsAndCopyLatents) {
  struct Case {
    const char* model;
    int64_t ranks;
    uint64_t bytes_per_token;
  };
  const Case cases[] = {
      {"llama-3.1-8b", 1, 32 * 8 * 512}, {"llama-3.1-8b", 2, 32 * 4 * 512},
      {"llama-3.1-8b", 3, 32 * 3 * 512}, {"llama-3.1-8b", 16, 32 * 1 * 512},
      {"qwen2.5-7b", 8, 28 * 1 * 512},   {"falcon-7b", 4, 32 * 1 * 256},
      {"deepseek-v3", 8, 61 * 1152},
  };
  for (const Case& c : cases) {
    CalcRequest q;
    q.model = c.model;
    q.tokens = 4096;
    q.tensor_parallel_size = c.ranks;
    EXPECT_EQ(calculated(q).kv.bytes_per_token, c.bytes_per_token) << c.model << " " << c.ranks;
  }
  CalcRequest q;  // expanded: 128 heads over 3 ranks are 43 each
  q.model = "deepseek-v3";
  q.tokens = 4096;
  q.tensor_parallel_size = 3;
  q.mla = "expanded";
  EXPECT_EQ(calculated(q).kv.bytes_per_token, 61u * 43 * (192 + 128) * 2);
}

TEST(CalcFormulas, KeysAndValuesOfDifferentWidth) {
  const CalcResult r = calculated(of_config({{"model_type", "mimo_v2"},
                                             {"num_hidden_layers", 4},
                                             {"hidden_size", 4096},
                                             {"num_attention_heads", 64},
                                             {"num_key_value_heads", 4},
                                             {"head_dim", 192},
                                             {"v_head_dim", 128},
                                             {"swa_num_key_value_heads", 8},
                                             {"sliding_window", 128},
                                             {"hybrid_layer_pattern", {0, 1, 1, 1}}},
                                            1000));
  EXPECT_EQ(r.kv.ideal_bytes, 2u * 320 * (4 * 1000 + 3 * 8 * 128));
  EXPECT_EQ(r.kv.allocated_bytes, 2u * 320 * 16 * (4 * 63 + 3 * 8 * 9));
}

TEST(CalcFormulas, ASharedPrefixCountsOnce) {
  CalcRequest q = of_config(kGqa, 1024);
  q.sequences = 10;
  q.shared_prefix = 1000;
  constexpr uint64_t kToken = 16 * 8 * 256;
  EXPECT_EQ(calculated(q).kv.ideal_bytes, kToken * (10 * 1024 - 9 * 1000));
  // Whole blocks are shared: 62 of the prefix, 64 in all.
  EXPECT_EQ(calculated(q).kv.allocated_bytes, kToken * 16 * (10 * 64 - 9 * 62));
  CalcRequest mixed = of_config(kGqa, 1);
  mixed.tokens.reset();
  mixed.lengths = {100, 2000, 100};
  EXPECT_EQ(calculated(mixed).kv.ideal_bytes, kToken * 2200);
  EXPECT_EQ(calculated(mixed).kv.allocated_bytes, kToken * 16 * (7 + 125 + 7));
}

TEST(CalcFormulas, WhatFits) {
  constexpr uint64_t kToken = 16 * 8 * 256;
  CalcRequest q = of_config(kGqa, 1000);
  q.kv_cache_memory_bytes = kToken * 16 * 200 + 5;  // 200 blocks of all tables
  const CalcResult r = calculated(q);
  ASSERT_TRUE(r.fits);
  EXPECT_EQ(r.fits->max_tokens, 3200);
  EXPECT_EQ(r.fits->max_context, 3200);
  EXPECT_EQ(r.fits->max_sequences, 3);  // 63 blocks each
  EXPECT_FALSE(r.fits->context_is_the_models);
  // With a budget of 512 slots: the peak is 32 blocks and one interval, the length does not matter.
  q.kv = {{"policy", "streaming"}, {"budget", "512"}, {"interval", "128"}};
  const CalcResult c = calculated(q);
  EXPECT_EQ(c.kv.steady_bytes, kToken * 512);
  EXPECT_EQ(c.kv.peak_bytes, kToken * 640);
  EXPECT_TRUE(c.kv.exact);
  EXPECT_EQ(c.fits->max_sequences, 5);
  EXPECT_EQ(c.fits->max_context, 131072);
  EXPECT_TRUE(c.fits->context_is_the_models);
  // A prompt of 1000 tokens is held whole once.
  q.prompt_tokens = 1000;
  EXPECT_EQ(calculated(q).kv.peak_bytes, kToken * 1008);
}

TEST(CalcFormulas, LongLivesAreQuick) {
  CalcRequest q = of_config(kGqa, 1 << 30);
  q.prompt_tokens = 1 << 20;
  for (const char* policy : {"full", "h2o", "streaming", "snapkv", "scissorhands", "pyramidkv"}) {
    q.kv = {{"policy", policy}};
    const CalcResult r = calculated(q);
    EXPECT_GE(r.kv.peak_bytes, r.kv.steady_bytes) << policy;
    EXPECT_GE(r.kv.allocated_bytes, r.kv.peak_bytes) << policy;
  }
}

// What would be followed for minutes becomes a bound, and says so: any server may be asked this.
TEST(CalcFormulas, NoCalculationIsLong) {
  const auto says = [](const CalcResult& r, std::string_view part) {
    return std::any_of(r.notes.begin(), r.notes.end(),
                       [&](const std::string& n) { return n.find(part) != std::string::npos; });
  };
  CalcRequest q;
  q.model = "gemma-3-27b-it";
  q.tokens = 1 << 30;
  q.prompt_tokens = 1 << 29;
  q.memory_bytes = uint64_t{1} << 50;
  for (const KvOptions& kv : {KvOptions{{"policy", "h2o"}, {"packing", "block"}},
                              {{"policy", "h2o"}, {"budget", "25%"}},
                              {{"policy", "triattention"}, {"prefill_evict", "on"}}}) {
    q.kv = kv;
    const CalcResult r = calculated(q);
    EXPECT_FALSE(r.kv.exact);
    EXPECT_TRUE(says(r, "so many steps are not followed"));
    EXPECT_GE(r.kv.peak_bytes, r.kv.steady_bytes);
    EXPECT_LE(r.kv.peak_bytes, r.kv.reserved_bytes);
  }
  // Sequences of many lengths share the steps.
  CalcRequest lengths = of_config(kGqa, 1);
  lengths.tokens.reset();
  for (int64_t n = 1; n <= 60000; ++n) lengths.lengths.push_back(1000 * n);
  lengths.kv = {{"policy", "h2o"}, {"budget", "64"}};
  EXPECT_FALSE(calculated(lengths).kv.exact);
  lengths.lengths.resize(1000);
  EXPECT_TRUE(calculated(lengths).kv.exact);
  // What fits is searched by few steps each; all of a short life is followed.
  q.tokens = 8192;
  q.prompt_tokens = 1024;
  q.kv = {{"policy", "snapkv-d"}, {"budget", "1024"}};
  EXPECT_FALSE(says(calculated(q), "not followed"));
}

}  // namespace
}  // namespace pagefold::testing
