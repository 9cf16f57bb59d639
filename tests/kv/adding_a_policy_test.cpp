// Compiles and runs the example of docs/adding-a-policy.md, which must be this text.
#include <cmath>

#include "kv/support/cases.h"

// [example]
#include "kv/policy.h"

namespace pagefold {
namespace {

constexpr ParamSpec kFadingParams[] = {
    {"half_life", 1024, 1, 1 << 20, true, {}, "tokens after which a score counts half"}};

class Fading final : public Policy {
 public:
  std::string_view name() const override { return "fading"; }
  std::string_view summary() const override { return "attention mass that fades with age"; }
  std::span<const ParamSpec> params() const override { return kFadingParams; }
  Needs needs(const PolicyParams&) const override {
    Needs n;
    n.prompt = PromptRows::last;
    n.window = 32;
    n.decode = DecodeRows::all;
    n.form = MassForm::probability;
    return n;
  }
  Scope scope(const PolicyParams&) const override { return Scope::layer; }
  void scores(const ScoreInput& in, const SlotSignals& s, float* out) const override {
    const double half_life = in.params.get("half_life");
    for (int64_t i = 0; i < s.n; ++i) {
      const auto age = static_cast<double>(in.next_pos - s.positions[i]);
      out[i] = static_cast<float>(static_cast<double>(s.mass[i]) * std::exp2(-age / half_life));
    }
  }
};

}  // namespace

const Policy& policy_fading() {
  static const Fading policy;
  return policy;
}

}  // namespace pagefold
// [example]

namespace pagefold {
namespace {

using namespace testing;  // NOLINT

TEST(AddingAPolicy, TheExampleCompacts) {
  const KvModel m = small_model(2, 4, 2);
  World world(m, 512);
  Compactor compactor(m);
  KvPlan plan = plan_of(m, {{"policy", "random"}, {"budget", "64"}, {"interval", "16"}});
  plan.policy = &policy_fading();
  plan.params = PolicyParams();
  for (const ParamSpec& p : plan.policy->params()) plan.params.set(p.key, p.value);
  {
    Life life(world, compactor, plan, 100, 1, random_rows(1), random_keys(1));
    life.prompt(100, 30);
    for (int i = 0; i < 100; ++i) life.step(1);
    EXPECT_GT(life.compression.counts().compactions, 4);
    EXPECT_EQ(life.positions(0), life.positions(1));  // one set a layer
    life.check_contents();
  }
  EXPECT_EQ(world.pool.used_count(), 0u);
}

TEST(AddingAPolicy, ThePageShowsThisCode) {
  const std::string root = PAGEFOLD_SOURCE_DIR;
  const auto page = read_file(root + "/docs/adding-a-policy.md", 1 << 20);
  const auto code = read_file(root + "/tests/kv/adding_a_policy_test.cpp", 1 << 20);
  ASSERT_TRUE(page.ok() && code.ok());
  const std::string mark = "// [example]\n";
  const size_t begin = code->find(mark) + mark.size();
  const std::string example = code->substr(begin, code->find(mark, begin) - begin);
  EXPECT_GT(example.size(), 1000u);
  EXPECT_NE(page->find(example), std::string::npos);
}

}  // namespace
}  // namespace pagefold
