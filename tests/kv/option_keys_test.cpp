// The keys of `kv`: one table that is read, listed and checked for words that do nothing.
#include "kv/option_keys.h"

#include <gmock/gmock.h>

#include "kv/support/world.h"

namespace pagefold {
namespace {

using namespace testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<KvPlan> parse_words(const KvWords& request, const KvWords& server = {},
                           const KvLimits& permitted = {}) {
  return parse_kv_options(request, server, small_model(2, 4, 2), permitted, 0);
}

// A word for every key that is of plans, and a policy that uses it. A new key needs a line here.
const std::map<std::string_view, std::pair<KvWords, std::string>> kSamples = {
    {"policy", {{}, "h2o"}},
    {"budget", {{{"policy", "h2o"}}, "512"}},
    {"interval", {{{"policy", "h2o"}}, "64"}},
    {"sinks", {{{"policy", "h2o"}}, "8"}},
    {"recent", {{{"policy", "h2o"}}, "16"}},
    {"protect_prompt", {{{"policy", "h2o"}}, "on"}},
    {"packing", {{{"policy", "h2o"}}, "block"}},
    {"release", {{{"policy", "h2o"}}, "pool"}},
    {"alloc", {{{"policy", "h2o"}}, "global"}},
    {"alpha", {{{"policy", "adakv"}}, "0.5"}},
    {"beta", {{{"policy", "pyramidkv"}}, "10"}},
    {"keep", {{{"policy", "h2o"}}, "0:4"}},
    {"prefill_evict", {{{"policy", "h2o"}}, "on"}},
    {"prefill_chunk", {{{"policy", "h2o"}, {"prefill_evict", "on"}}, "64"}},
    {"before_suffix", {{{"policy", "snapkv"}}, "off"}},
    {"elastic", {{{"policy", "h2o"}}, "on"}},
    {"select", {{{"policy", "full"}}, "quest"}},
    {"select_budget", {{{"policy", "quest"}}, "64"}},
    {"select_exempt", {{{"policy", "quest"}}, "0"}},
};

TEST(KvKeys, EveryKeyIsReadAndListed) {
  const std::string unknown = message_of(parse_words({{"policy", "h2o"}, {"nope", "1"}}).status());
  for (const KvKey& key : kv_keys()) {
    EXPECT_THAT(unknown + ",", HasSubstr(fmt::format(" {},", key.name)));
    const std::string name(key.name);
    if (key.of_request) {
      // The engine has taken it out; what is left stands where it has no meaning.
      EXPECT_THAT(message_of(parse_words({{"policy", fmt::format("h2o:{}=x", name)}}).status()),
                  HasSubstr(fmt::format("kv.{}: it is of single requests", name)));
      continue;
    }
    const auto sample = kSamples.find(key.name);
    ASSERT_NE(sample, kSamples.end()) << name;
    KvWords words = sample->second.first;
    words[name] = sample->second.second;
    const auto plan = parse_words(words);
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status();
    EXPECT_THAT(plan->unused, IsEmpty()) << name;
    // Each reads its word: nonsense is refused by its name.
    words[name] = "??";
    EXPECT_THAT(message_of(parse_words(words).status()), HasSubstr("kv." + name)) << name;
  }
  EXPECT_THAT(unknown, HasSubstr("session, drop_thinking"));
}

TEST(KvKeys, EveryPolicyTakesEveryCommonKey) {
  std::vector<std::string_view> names;
  for (const Policy* p : all_policies()) names.push_back(p->name());
  for (const Preset& p : all_presets()) names.push_back(p.name);
  KvLimits limits;
  limits.allow_offline = true;
  for (const std::string_view policy : names) {
    for (const auto& [key, sample] : kSamples) {
      if (key == "policy") continue;
      const KvWords words = {{"policy", std::string(policy)}, {std::string(key), sample.second}};
      const auto plan = parse_words(words, {}, limits);
      if (plan.ok()) continue;
      EXPECT_TRUE(key == "protect_prompt" && find_policy(policy) != find_policy("full"))
          << policy << " " << plan.status();
    }
  }
}

TEST(KvKeys, WordsThatDoNothingAreNamed) {
  const auto unused = [](const KvWords& request, const KvWords& server = {}) {
    return parse_words(request, server)->unused;
  };
  EXPECT_THAT(unused({{"budget", "256"}}), ElementsAre("budget"));
  EXPECT_THAT(unused({{"policy", "full"},
                      {"budget", "256"},
                      {"interval", "8"},
                      {"packing", "fill"},
                      {"alloc", "global"},
                      {"prefill_evict", "on"},
                      {"elastic", "on"}}),
              ElementsAre("budget", "interval", "packing", "alloc", "prefill_evict", "elastic"));
  // What these ask for holds where nothing is evicted.
  EXPECT_THAT(unused({{"sinks", "4"}, {"recent", "9"}, {"protect_prompt", "on"}, {"keep", "0:2"}}),
              IsEmpty());
  EXPECT_THAT(unused({{"policy", "h2o:alpha=0.5,beta=3"}}), ElementsAre("alpha", "beta"));
  EXPECT_THAT(unused({{"policy", "h2o:alloc=pyramid,alpha=0.5,beta=3"}}), ElementsAre("alpha"));
  EXPECT_THAT(unused({{"policy", "snapkv"}, {"interval", "8"}}), ElementsAre("interval"));
  EXPECT_THAT(unused({{"policy", "snapkv"}, {"elastic", "on"}}), ElementsAre("elastic"));
  EXPECT_THAT(unused({{"policy", "snapkv-d"}, {"elastic", "on"}}), IsEmpty());
  EXPECT_THAT(unused({{"policy", "h2o"}, {"prefill_chunk", "64"}, {"select_budget", "9"}}),
              ElementsAre("prefill_chunk", "select_budget"));
  EXPECT_THAT(unused({{"policy", "quest"}, {"budget", "64"}}), IsEmpty());
  EXPECT_THAT(unused({{"policy", "quest"}, {"budget", "64"}, {"select_budget", "32"}}),
              ElementsAre("budget"));
  // A server's default is no word of the request.
  EXPECT_THAT(unused({{"policy", "full"}}, {{"policy", "h2o"}, {"budget", "64"}}), IsEmpty());
  EXPECT_THAT(unused({}, {{"budget", "64"}}), IsEmpty());
}

TEST(KvKeys, QuestReadsAShareOfTheTokensSoFar) {
  const KvPlan share = *parse_words({{"policy", "quest"}, {"budget", "25%"}});
  EXPECT_EQ(share.quest_tokens_at(4000), 1000);
  EXPECT_EQ(share.quest_tokens_at(1), 1);
  EXPECT_EQ(parse_words({{"policy", "quest"}, {"budget", "512"}})->quest_tokens_at(9999), 512);
  const KvWords both = {{"policy", "h2o"}, {"select", "quest"}, {"budget", "50%"}};
  EXPECT_EQ(parse_words(both)->quest_tokens_at(100), 50);
  const KvWords own = {{"policy", "quest"}, {"budget", "25%"}, {"select_budget", "32"}};
  EXPECT_EQ(parse_words(own)->quest_tokens_at(4000), 32);
  EXPECT_THAT(parse_words(own)->unused, ElementsAre("budget"));
}

TEST(KvKeys, PackingOffersWhatIsServed) {
  KvLimits limits;
  EXPECT_THAT(message_of(parse_words({{"packing", "tight"}}, {}, limits).status()),
              ::testing::EndsWith("order,fill,block"));
  limits.allow_off = true;
  EXPECT_THAT(message_of(parse_words({{"packing", "tight"}}, {}, limits).status()),
              ::testing::EndsWith("order,fill,block,off"));
  EXPECT_TRUE(parse_words({{"policy", "h2o"}, {"packing", "off"}}, {}, limits).ok());
}

}  // namespace
}  // namespace pagefold
