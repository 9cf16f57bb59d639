// At equal KV memory many more compressed sequences run at once: nothing but block counts, so the
// ratio of a few tables is that of a whole model.
#include <gtest/gtest.h>

#include "base/log.h"
#include "support/fit.h"

namespace pagefold::testing {
namespace {

// 8,192 tokens at the end, a tenth of them kept.
TEST(Fit, TenfoldEvictionRunsSevenTimesAsManySequences) {
  log::set_level(log::Level::error);  // who is set back is no news here
  FitCase c{numbers_shape(1, 1, 1, 8)};
  c.pool_bytes = full_bytes(c, 8);
  const auto full = most_at_once(c, 12);
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(*full, 8);
  struct Case {
    KvOptions kv;
    int64_t least;
  };
  // The prompt is held whole until its end unless it is cut between chunks.
  for (const auto& [kv, least] :
       {Case{{{"policy", "triattention"}, {"budget", "819"}, {"protect_prompt", "off"}}, 8 * 7},
        Case{{{"policy", "h2o"}, {"budget", "819"}}, 8 * 7},
        Case{{{"policy", "snapkv-d"}, {"budget", "819"}, {"packing", "block"}}, 8 * 7},
        Case{{{"policy", "kvcompress"}, {"budget", "819"}}, 8 * 7},
        Case{{{"policy", "snapkv-d"}, {"budget", "819"}, {"prefill_evict", "on"}}, 8 * 8}}) {
    c.kv = kv;
    const auto fits = run_at_once(c, least);
    ASSERT_TRUE(fits.ok()) << fits.status();
    EXPECT_TRUE(*fits) << kv.at("policy") << ": not " << least << " at once";
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace pagefold::testing
