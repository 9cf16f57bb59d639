#include <gtest/gtest.h>

#include "api/loaded_model.h"

namespace pagefold {
namespace {

TEST(GenerationDefaults, ReplaceOnlyWhatTheModelSays) {
  SamplingOptions options;
  apply_defaults({.temperature = 0.6f, .top_k = 20, .max_new_tokens = 9}, options);
  EXPECT_FLOAT_EQ(options.temperature, 0.6f);
  EXPECT_EQ(options.top_k, 20);
  EXPECT_FLOAT_EQ(options.top_p, 1.0f);
  EXPECT_FLOAT_EQ(options.repetition_penalty, 1.0f);
  EXPECT_FALSE(options.max_tokens);
}

}  // namespace
}  // namespace pagefold
