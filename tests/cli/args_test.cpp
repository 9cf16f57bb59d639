#include "cli/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagefold {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Args = std::vector<std::string>;

template <class C>
C parsed(Args args) {
  const auto result = parse_args(std::move(args));
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok() || !std::holds_alternative<C>(result->action)) {
    ADD_FAILURE() << "another subcommand";
    return {};
  }
  return std::get<C>(result->action);
}

std::string error_of(Args args) {
  const auto result = parse_args(std::move(args));
  EXPECT_FALSE(result.ok());
  if (result.ok()) return "";
  EXPECT_TRUE(absl::IsInvalidArgument(result.status()));
  return message_of(result.status());
}

TEST(Normalise, UnderscoresInNamesOnly) {
  EXPECT_THAT(normalise_args({"serve", "--max_model_len=8_k", "a_b", "--", "--x_y"}),
              ElementsAre("serve", "--max-model-len=8_k", "a_b", "--", "--x_y"));
}

TEST(Normalise, TextThatBeginsWithADash) {
  EXPECT_THAT(normalise_args({"-p", "--a_b", "--stop", "-", "--stop", "-x"}),
              ElementsAre("--prompt=--a_b", "--stop", "-", "--stop=-x"));
}

TEST(Args, GenerateWithAliases) {
  const auto c = parsed<GenerateCommand>({"generate", "-m", "x.gguf", "-p", "- a list", "-n", "16",
                                          "-t", "2", "-c", "8k", "--temp", "0", "--top-k", "-1"});
  EXPECT_EQ(c.engine.model, "x.gguf");
  EXPECT_EQ(c.prompt, "- a list");
  EXPECT_TRUE(c.has_prompt);
  EXPECT_EQ(c.sampling.max_tokens, 16);
  EXPECT_EQ(c.engine.threads, 2);
  EXPECT_EQ(c.engine.max_model_len, 8000);
  EXPECT_EQ(c.given.temperature, 0.0f);
  EXPECT_FALSE(c.given.top_p);
  EXPECT_EQ(c.given.top_k, -1);
}

TEST(Args, ModelIsTheFirstPositional) {
  EXPECT_EQ(parsed<ServeCommand>({"serve", "m"}).engine.model, "m");
  EXPECT_EQ(parsed<ServeCommand>({"serve", "--port", "0", "m"}).engine.model, "m");
  EXPECT_EQ(parsed<ServeCommand>({"serve", "--model", "m"}).engine.model, "m");
  EXPECT_EQ(parsed<ServeCommand>({"serve"}).engine.model, "");
  error_of({"serve", "a", "--model", "b"});
  error_of({"serve", "a", "b"});
}

TEST(Args, EngineSizes) {
  const auto c = parsed<ServeCommand>(
      {"serve", "--max-num-seqs", "8", "--max_num_batched_tokens", "1K", "--kv-cache-memory-bytes",
       "2G", "--gpu-memory-utilization", "0.25", "--block-size=32", "--max-model-len", "AUTO"});
  EXPECT_EQ(c.engine.max_num_seqs, 8);
  EXPECT_EQ(c.engine.max_num_batched_tokens, 1024);
  EXPECT_EQ(c.engine.kv_cache_memory_bytes, 2ull << 30);
  EXPECT_EQ(c.engine.memory_utilization, 0.25);
  EXPECT_EQ(c.engine.block_size, 32);
  EXPECT_EQ(c.engine.max_model_len, 0);
}

TEST(Args, SharingAndPressure) {
  EXPECT_TRUE(parsed<ServeCommand>({"serve"}).engine.enable_prefix_caching);
  EXPECT_FALSE(
      parsed<ServeCommand>({"serve", "--no-enable-prefix-caching"}).engine.enable_prefix_caching);
  EXPECT_FALSE(parsed<GenerateCommand>({"generate", "-p", "x"}).engine.enable_prefix_caching);
  EXPECT_TRUE(parsed<GenerateCommand>({"generate", "-p", "x", "--enable_prefix_caching"})
                  .engine.enable_prefix_caching);
  const EngineOptions e =
      parsed<ServeCommand>({"serve", "--prefix-cache-memory-bytes", "1M", "--prefix-cache-ttl",
                            "2.5", "--admission", "guaranteed", "--kv-spill-dir", "/x",
                            "--kv-spill-bytes", "2G"})
          .engine;
  EXPECT_EQ(e.prefix_cache_memory_bytes, 1u << 20);
  EXPECT_EQ(e.prefix_cache_ttl, 2.5);
  EXPECT_EQ(e.admission, "guaranteed");
  EXPECT_EQ(e.kv_spill_dir, "/x");
  EXPECT_EQ(e.kv_spill_bytes, 2ull << 30);
  EXPECT_THAT(error_of({"serve", "--admission", "never"}), HasSubstr("optimistic, guaranteed"));
  EXPECT_THAT(error_of({"serve", "--prefix-cache-ttl", "-1"}), HasSubstr("--prefix-cache-ttl"));
}

TEST(Args, KvTypesOfEverySubcommand) {
  const Args types = {"--kv-cache-dtype", "int8", "--kv_cache_dtype_v=int4", "--kv-cache-group",
                      "32"};
  const auto with = [&](Args args) {
    args.insert(args.end(), types.begin(), types.end());
    return args;
  };
  for (const EngineOptions& e :
       {parsed<ServeCommand>(with({"serve"})).engine, parsed<ChatCommand>(with({"chat"})).engine,
        parsed<GenerateCommand>(with({"generate", "-p", "x"})).engine,
        parsed<CalibrateCommand>(with({"calibrate", "-o", "x"})).engine}) {
    EXPECT_EQ(e.kv_cache_dtype, "int8");
    EXPECT_EQ(e.kv_cache_dtype_v, "int4");
    EXPECT_EQ(e.kv_cache_group, 32);
  }
  for (const KvTypeWords& kv : {parsed<InspectCommand>(with({"inspect"})).kv,
                                parsed<ReclaimCommand>(with({"reclaim"})).kv}) {
    EXPECT_EQ(kv.k, "int8");
    EXPECT_EQ(kv.v, "int4");
    EXPECT_EQ(kv.group, 32);
  }
  EXPECT_EQ(parsed<ReclaimCommand>({"reclaim"}).kv.k, "bfloat16");
  EXPECT_EQ(parsed<ServeCommand>({"serve"}).engine.kv_cache_group, kAutoKvGroup);
  EXPECT_EQ(parsed<ServeCommand>({"serve", "--kv-cache-group", "0"}).engine.kv_cache_group, 0);
  EXPECT_EQ(parsed<ServeCommand>({"serve", "--kv-cache-group", "0", "--kv-cache-group", "auto"})
                .engine.kv_cache_group,
            kAutoKvGroup);
  EXPECT_EQ(parsed<CalcCommand>({"calc", "x", "--kv-cache-group", "0"}).request.kv_cache_group, 0);
  EXPECT_EQ(parsed<ServeCommand>({"serve", "--kv-cache-dtype", "fp8"}).engine.kv_cache_dtype_v,
            "auto");
  EXPECT_THAT(error_of({"serve", "--kv-cache-dtype", "int2"}), HasSubstr("fp8_e4m3"));
  for (const char* group : {"16", "-1", "abc", "", "AUTO"})
    EXPECT_THAT(error_of({"serve", "--kv-cache-group", group}), HasSubstr("must be auto, 0 or 32"));
}

TEST(Args, QuantizeRefusesFlagsOfOtherMethods) {
  const auto with = [](const std::string& method, Args more) {
    Args args = {"quantize", "x", "-o", "y", "--method", method};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  EXPECT_THAT(error_of(with("awq", {"--bits", "3"})), HasSubstr("--bits: is not for awq"));
  EXPECT_THAT(error_of(with("fp8", {"--group-size", "32"})), HasSubstr("but for awq and gptq"));
  EXPECT_THAT(error_of(with("fp8", {"--no-sym"})), HasSubstr("--sym"));
  EXPECT_THAT(error_of(with("none", {"--fp8-scales", "block"})), HasSubstr("but for fp8"));
  EXPECT_THAT(error_of(with("bnb-int8", {"--no-double-quant"})), HasSubstr("but for bnb-nf4"));
  EXPECT_EQ(parsed<QuantizeCommand>(with("gptq", {"--bits", "3", "--desc-act"})).options.how.bits,
            3);
  EXPECT_FALSE(parsed<QuantizeCommand>(with("awq", {"--no-clip"})).options.how.clip);
}

TEST(Args, TheLastOfSeveralWins) {
  EXPECT_EQ(parsed<ServeCommand>({"serve", "--port", "1", "--port", "2"}).port, 2);
}

TEST(Args, Pairs) {
  EXPECT_TRUE(parsed<ServeCommand>({"serve", "--allow-long-context"}).engine.allow_long_context);
  EXPECT_FALSE(
      parsed<ServeCommand>({"serve", "--no-allow-long-context"}).engine.allow_long_context);
  EXPECT_FALSE(parsed<GenerateCommand>({"generate", "-p", "x", "--no-skip-special-tokens"})
                   .sampling.skip_special_tokens);
  EXPECT_TRUE(parsed<GenerateCommand>({"generate", "-p", "x", "--json"}).json);
}

TEST(Args, RepeatedFlags) {
  const auto c = parsed<GenerateCommand>({"generate", "-p", "x", "--stop", "a b", "--stop", "-",
                                          "--logit-bias", "5:-100", "--logit-bias", "7:1.5"});
  EXPECT_THAT(c.sampling.stop, ElementsAre("a b", "-"));
  EXPECT_THAT(c.sampling.logit_bias, ElementsAre(std::pair(5, -100.0f), std::pair(7, 1.5f)));
}

TEST(Args, ErrorsNameTheFlagAndTheChoices) {
  EXPECT_THAT(error_of({"serve", "--dtype", "int4"}),
              AllOf(HasSubstr("--dtype"), HasSubstr("bfloat16")));
  EXPECT_THAT(error_of({"serve", "--port", "70000"}), HasSubstr("65535"));
  EXPECT_THAT(error_of({"serve", "--block-size", "20"}), HasSubstr("multiple of 16"));
  EXPECT_THAT(error_of({"serve", "--max-model-len", "25.6K"}), HasSubstr("'k'"));
  EXPECT_THAT(error_of({"serve", "--max-model-len", ""}), HasSubstr("--max-model-len"));
  EXPECT_THAT(error_of({"generate", "-p", "x", "--top-p", "0"}), HasSubstr("--top-p"));
  EXPECT_THAT(error_of({"generate", "-p", "x", "--temperature", "nan"}),
              HasSubstr("--temperature"));
  EXPECT_THAT(error_of({"serve", "--no-such-flag"}), HasSubstr("no-such-flag"));
}

TEST(Args, WhatDoesNotGoTogether) {
  EXPECT_THAT(error_of({"generate"}), HasSubstr("no prompt"));
  error_of({"generate", "-p", "x", "-f", "y"});
  EXPECT_THAT(error_of({"generate", "-p", "x", "--system", "s"}), HasSubstr("--chat"));
  EXPECT_THAT(error_of({"generate", "-p", "x", "-n", "4", "--min-tokens", "5"}),
              HasSubstr("--min-tokens"));
  error_of({});
  error_of({"no-such-subcommand"});
}

TEST(Args, EmptyPromptIsAPrompt) {
  const auto c = parsed<GenerateCommand>({"generate", "-p", "", "-n", "1"});
  EXPECT_TRUE(c.has_prompt);
  EXPECT_EQ(c.prompt, "");
}

TEST(Args, HelpAndVersionAreText) {
  EXPECT_THAT(parsed<ShowText>({"--help"}).text, HasSubstr("generate"));
  EXPECT_THAT(parsed<ShowText>({"serve", "--help"}).text, HasSubstr("--max-num-seqs"));
  EXPECT_THAT(parsed<ShowText>({"--version"}).text, HasSubstr("pagefold"));
}

TEST(Args, LogLevelBeforeOrAfterTheSubcommand) {
  EXPECT_EQ(parse_args({"--log-level", "warn", "serve"})->log_level, "warn");
  EXPECT_EQ(parse_args({"serve", "--log-level", "error"})->log_level, "error");
}

// A flag wins over the model's default, which wins over the neutral value.
TEST(Args, SamplingPrecedence) {
  const auto parsed = parse_args({"generate", "-p", "x", "--top-k", "0", "--seed", "3"});
  ASSERT_TRUE(parsed.ok());
  const auto& c = std::get<GenerateCommand>(parsed->action);
  SamplingOptions model;
  model.temperature = 0.6f;
  model.top_k = 20;
  const SamplingOptions merged = merge_sampling(model, c.sampling, c.given);
  EXPECT_FLOAT_EQ(merged.temperature, 0.6f);
  EXPECT_EQ(merged.top_k, 0);
  EXPECT_FLOAT_EQ(merged.min_p, 0.0f);
  EXPECT_EQ(merged.seed, 3u);
}

}  // namespace
}  // namespace pagefold
