#include "kv/registry.h"

#include <gmock/gmock.h>

#include "kv/support/world.h"

namespace pagefold {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;

Result<KvPlan> parse(const KvWords& request, const KvWords& server = {}, KvLimits limits = {},
                     int64_t n_prompt = 0) {
  return parse_kv_options(request, server, small_model(2, 4, 2), limits, n_prompt);
}
std::string error(const KvWords& request, const KvWords& server = {}, KvLimits limits = {},
                  int64_t n_prompt = 0) {
  const auto plan = parse(request, server, limits, n_prompt);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  return message_of(plan.status());
}

TEST(KvRegistry, DefaultsAreThoseOfTheMethods) {
  EXPECT_EQ(parse({})->name, "full");
  EXPECT_FALSE(parse({})->evicts());
  const KvPlan h2o = *parse({{"policy", "h2o"}});
  EXPECT_EQ(h2o.budget, 2048);
  EXPECT_EQ(h2o.sinks, 0);
  EXPECT_EQ(h2o.recent_at(0), 1024);
  EXPECT_EQ(h2o.interval, 1);
  EXPECT_EQ(h2o.packing, Packing::fill);
  const KvPlan streaming = *parse({{"policy", "streaming"}});
  EXPECT_EQ(streaming.sinks, 4);
  EXPECT_EQ(streaming.recent_at(0), 2044);
  const KvPlan tri = *parse({{"policy", "triattention"}});
  EXPECT_EQ(tri.recent, 128);
  EXPECT_TRUE(tri.protect_prompt);
  EXPECT_EQ(tri.policy->scope(tri.params), Scope::head);
  const KvPlan snap = *parse({{"policy", "snapkv"}});
  EXPECT_EQ(snap.recent_at(0), 32);
  EXPECT_EQ(snap.policy->needs(snap.params).window, 32);
  EXPECT_TRUE(snap.defaults.once);
  const KvPlan pyramid = *parse({{"policy", "pyramidkv"}});
  EXPECT_EQ(pyramid.policy, snap.policy);
  EXPECT_EQ(pyramid.alloc->name(), "pyramid");
  EXPECT_EQ(pyramid.name, "pyramidkv");
  EXPECT_EQ(parse({{"policy", "adakv"}})->alloc_params.alpha, 0.2);
  EXPECT_EQ(parse({{"policy", "kvcompress"}})->alloc->name(), "global");
  const KvPlan rkv = *parse({{"policy", "rkv"}});
  EXPECT_EQ(rkv.params.get("lambda"), 0.1);
  EXPECT_EQ(rkv.policy->needs(rkv.params).query_ring, 8);
  const KvPlan scissors = *parse({{"policy", "scissorhands"}});
  EXPECT_EQ(scissors.policy->needs(scissors.params).window, 400);
  EXPECT_EQ(scissors.recent, 10);
  const KvPlan quest = *parse({{"policy", "quest"}, {"budget", "512"}});
  EXPECT_FALSE(quest.evicts());
  EXPECT_EQ(quest.quest_tokens, 512);
  EXPECT_EQ(quest.quest_exempt_layers, 2);
}

TEST(KvRegistry, SyntaxComposes) {
  const KvPlan p = *parse({{"policy", "h2o:alloc=adaptive,interval=16"}, {"budget", "25%"}});
  EXPECT_EQ(p.alloc->name(), "adaptive");
  EXPECT_EQ(p.interval, 16);
  EXPECT_EQ(p.budget_at(8000), 2000);
  EXPECT_EQ(parse({{"policy", "h2o:interval=16"}, {"interval", "4"}})->interval, 4);
  EXPECT_EQ(parse({{"policy", "h2o"}, {"select", "quest"}})->quest_tokens, 2048);
  const KvPlan s = *parse({{"policy", "triattention"}, {"scope", "union"}, {"agg", "max"}});
  EXPECT_EQ(s.policy->scope(s.params), Scope::sequence);
  EXPECT_TRUE(parse({{"policy", "streaming"}, {"reindex", "on"}})->reindex);
}

TEST(KvRegistry, AServersWordsLieBelowTheRequests) {
  const KvWords server = {{"policy", "triattention"}, {"budget", "512"}, {"scope", "union"}};
  EXPECT_EQ(parse({}, server)->name, "triattention");
  EXPECT_EQ(parse({{"budget", "1024"}}, server)->budget, 1024);
  // Another policy keeps the budget and drops words it does not know.
  const KvPlan h2o = *parse({{"policy", "h2o"}}, server);
  EXPECT_EQ(h2o.budget, 512);
  EXPECT_EQ(h2o.interval, 1);
}

TEST(KvRegistry, ErrorsListWhatIsKnown) {
  EXPECT_THAT(error({{"policy", "snapkw"}}),
              HasSubstr("unknown policy \"snapkw\"; known policies: full, random, "
                        "streaming, h2o"));
  EXPECT_THAT(error({{"policy", "snapkw"}}), HasSubstr("pyramidkv, adakv"));
  EXPECT_THAT(error({{"policy", "h2o"}, {"budged", "1"}}),
              HasSubstr("unknown key \"budged\" for policy h2o; known keys: policy, budget"));
  EXPECT_THAT(error({{"policy", "h2o"}, {"window", "8"}}), HasSubstr("unknown key \"window\""));
  EXPECT_THAT(error({{"policy", "rkv"}, {"windw", "8"}}), HasSubstr("window, kernel, lambda"));
  EXPECT_THAT(error({{"policy", "h2o:alloc=adaptve"}}),
              HasSubstr("known values: uniform, pyramid, adaptive, global"));
  EXPECT_THAT(error({{"packing", "tight"}}), ::testing::EndsWith("order,fill,block"));
  EXPECT_THAT(error({{"budget", "2k"}}), HasSubstr("whole number between 1 and"));
  EXPECT_THAT(error({{"budget", "0%"}}), HasSubstr("above 0%"));
  EXPECT_THAT(error({{"policy", "h2o:interval"}}), HasSubstr("NAME:KEY=VALUE"));
  EXPECT_THAT(error({{"policy", "snapkv"}, {"kernel", "4"}}), HasSubstr("odd"));
  EXPECT_THAT(error({{"policy", "rkv"}, {"lambda", "nan"}}), HasSubstr("number between 0 and 1"));
  EXPECT_THAT(error({{"policy", std::string(5000, 'x')}}), ::testing::SizeIs(::testing::Lt(400u)));
}

TEST(KvRegistry, BudgetsBelowTheProtectedSlotsNameBothNumbers) {
  EXPECT_THAT(error({{"policy", "random"}, {"budget", "35"}}),
              HasSubstr("35 is below the 36 slots that are always kept"));
  EXPECT_TRUE(parse({{"policy", "random"}, {"budget", "36"}}).ok());
  EXPECT_THAT(error({{"policy", "snapkv"}, {"budget", "31"}}), HasSubstr("31 is below the 32"));
  EXPECT_THAT(error({{"policy", "random"}, {"budget", "64"}, {"packing", "block"}}),
              HasSubstr("round up to whole blocks of 16"));
  EXPECT_THAT(error({{"policy", "triattention"}, {"budget", "160"}}), HasSubstr("170"));
  // The number it names is accepted, and one less is not.
  for (const char* policy : {"random", "h2o", "triattention", "snapkv", "streaming"}) {
    for (const KvWords& more :
         {KvWords{}, KvWords{{"packing", "block"}}, KvWords{{"alloc", "global"}}}) {
      KvWords words = more;
      words["policy"] = policy;
      words["budget"] = "1";
      if (parse(words).ok()) {  // what these keep follows the budget down
        EXPECT_TRUE(words["policy"] == "h2o" || words["policy"] == "streaming") << policy;
        continue;
      }
      const std::string said = error(words);
      const size_t at = said.find(" is below ");
      ASSERT_NE(at, std::string::npos) << policy << ": " << said;
      const std::string least = said.substr(said.find_first_of("0123456789", at));
      words["budget"] = std::to_string(std::stoi(least));
      EXPECT_TRUE(parse(words).ok()) << said << " / " << error(words);
      words["budget"] = std::to_string(std::stoi(least) - 1);
      EXPECT_THAT(error(words), HasSubstr(" is below ")) << said;
    }
  }
  // A share has its least at what is protected.
  EXPECT_EQ(parse({{"policy", "random"}, {"budget", "1%"}})->budget_at(100), 37);
}

TEST(KvRegistry, ServersRefuseWhatTheyDoNotServe) {
  EXPECT_THAT(error({{"policy", "h2o"}, {"packing", "off"}}),
              HasSubstr("use order, fill or block"));
  EXPECT_THAT(error({{"policy", "oracle"}}), HasSubstr("eval"));
  KvLimits limits;
  limits.min_interval = 16;
  EXPECT_THAT(error({{"policy", "h2o"}}, {}, limits), HasSubstr("least interval of 16"));
  EXPECT_TRUE(parse({{"policy", "snapkv"}}, {}, limits).ok());
  EXPECT_THAT(error({{"policy", "snapkv"}, {"protect_prompt", "on"}}),
              HasSubstr("nothing would go"));
}

TEST(KvRegistry, KeepSpansLieInThePrompt) {
  const KvPlan p = *parse({{"policy", "random"}, {"keep", "0:32,100:120"}}, {}, {}, 200);
  EXPECT_EQ(p.keep.size(), 2u);
  EXPECT_EQ(p.pinned_count(110, 200), 42);
  EXPECT_TRUE(p.pinned(119, 200));
  EXPECT_FALSE(p.pinned(120, 200));
  EXPECT_THAT(error({{"policy", "random"}, {"keep", "0:32"}}, {}, {}, 20), HasSubstr("beyond"));
  EXPECT_THAT(error({{"keep", "5:9,7:12"}}), HasSubstr("ascending, disjoint"));
  EXPECT_THAT(error({{"keep", "-1:2"}}), HasSubstr("ascending, disjoint"));
}

CalibrationStats some_stats(const KvModel& m) {
  const size_t n = static_cast<size_t>(m.n_layers * m.n_heads * m.bands());
  std::vector<double> re(n, 2.0), im(n, -4.0), abs(n, 6.0);
  QuerySums sums{2, re.data(), im.data(), abs.data()};
  return calibration_from_sums(m, sums, "some model");
}

TEST(Calibration, FilesRoundTripAndDamageIsNamed) {
  const KvModel m = small_model(2, 4, 2);
  const std::string file = write_calibration(some_stats(m));
  const auto back = read_calibration(file);
  ASSERT_TRUE(back.ok()) << message_of(back.status());
  EXPECT_EQ(back->model, "some model");
  EXPECT_EQ(back->re[3], 1.0f);
  EXPECT_EQ(back->im_d[3], -2.0);
  EXPECT_TRUE(check_calibration(*back, m).ok());
  EXPECT_FALSE(read_calibration("PK\x03\x04").ok());
  for (size_t cut = 0; cut < file.size(); cut += 7) {
    EXPECT_FALSE(read_calibration(std::string_view(file).substr(0, cut)).ok());
  }
  std::string damaged = file;
  damaged[file.size() / 2] ^= 1;
  EXPECT_THAT(message_of(read_calibration(damaged).status()), HasSubstr("checksum"));
  std::string huge = file;
  huge[10] = huge[14] = huge[18] = '\x7f';
  EXPECT_FALSE(read_calibration(huge).ok());
}

TEST(Calibration, AnotherModelsFileIsAnError) {
  const KvModel m = small_model(2, 4, 2);
  KvLimits limits;
  auto stats = std::make_shared<const CalibrationStats>(some_stats(m));
  limits.calibration = [&](std::string_view name) {
    return name == "mine" ? stats : std::shared_ptr<const CalibrationStats>();
  };
  limits.calibration_names = "mine";
  const KvWords words = {{"policy", "triattention"}, {"calibration", "mine"}};
  const auto plan = parse(words, {}, limits);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->params.has("self"));
  EXPECT_EQ(plan->policy->needs(plan->params).stats_prompt_rows, 0);
  EXPECT_THAT(error({{"policy", "triattention"}, {"calibration", "other"}}, {}, limits),
              HasSubstr("known: auto, self, mine"));
  KvModel other = m;
  other.inv_freq[2] *= 1.01;
  EXPECT_THAT(message_of(parse_kv_options(words, {}, other, limits, 0).status()),
              HasSubstr("rotary frequency 2"));
  other = small_model(3, 4, 2);
  EXPECT_THAT(message_of(parse_kv_options(words, {}, other, limits, 0).status()),
              HasSubstr("2 layers, this one has 3"));
}

}  // namespace
}  // namespace pagefold
