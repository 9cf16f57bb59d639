#include "engine/metrics.h"

#include <gtest/gtest.h>

namespace pagefold {
namespace {

TEST(Histogram, CountsUpToAndIncludingABound) {
  Histogram h({1, 2, 5});
  for (const double v : {0.5, 1.0, 1.5, 5.0, 6.0}) h.observe(v);
  EXPECT_EQ(h.counts, (std::vector<uint64_t>{2, 1, 1, 1}));
  EXPECT_EQ(h.n, 5u);
  EXPECT_EQ(h.sum, 14.0);
}

TEST(EngineMetrics, BoundsAreVllms) {
  const EngineMetrics m;
  EXPECT_EQ(m.ttft_s.bounds.size(), 22u);
  EXPECT_EQ(m.ttft_s.bounds.front(), 0.001);
  EXPECT_EQ(m.ttft_s.bounds.back(), 2560);
  EXPECT_EQ(m.inter_token_s.bounds.size(), 19u);
  EXPECT_EQ(m.e2e_s.bounds.size(), 21u);
  EXPECT_EQ(m.e2e_s.bounds.back(), 7680);
  EXPECT_EQ(m.iteration_tokens.bounds.back(), 16384);
  EXPECT_EQ(m.request_prompt_tokens.bounds[3], 10);
  EXPECT_EQ(m.request_prompt_tokens.bounds[4], 20);
  for (const Histogram* h :
       {&m.ttft_s, &m.inter_token_s, &m.e2e_s, &m.iteration_tokens, &m.request_prompt_tokens}) {
    for (size_t i = 1; i < h->bounds.size(); ++i) EXPECT_LT(h->bounds[i - 1], h->bounds[i]);
    EXPECT_EQ(h->counts.size(), h->bounds.size() + 1);
  }
}

}  // namespace
}  // namespace pagefold
