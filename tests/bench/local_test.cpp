#include "bench/local.h"

#include <gtest/gtest.h>

#include "kv/word_check.h"

namespace pagefold::bench {
namespace {

// A budget that is too small would show only after minutes, and take what was measured with it.
TEST(Local, DefaultsSuitAModelWithoutQueryStatistics) {
  const LocalOptions o;
  for (const std::string& policy : o.policies) {
    KvWords words = {{"policy", policy}};
    if (policy != "full") words["budget"] = o.budget;
    if (policy == "triattention") words["calibration"] = "self";
    const Status s = check_kv_words(words, {});
    EXPECT_TRUE(s.ok()) << s;
  }
}

TEST(Local, RefusesBeforeAModelIsLoaded) {
  LocalOptions o;
  o.engine.model = "/nowhere";
  o.progress = [](const std::string& what) { ADD_FAILURE() << what; };
  const auto message = [&] { return std::string(run_local(o).status().message()); };
  o.policies = {"full", "h3o"};
  EXPECT_NE(message().find("unknown policy"), std::string::npos);
  o.policies = {"h2o"};
  o.budget = "0";
  EXPECT_NE(message().find("kv.budget"), std::string::npos);
  o.kv_types = {"auto", "fp3"};
  EXPECT_NE(message().find("fp3"), std::string::npos);
}

}  // namespace
}  // namespace pagefold::bench
