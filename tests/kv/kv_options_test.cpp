#include "kv/kv_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagefold {
namespace {

using ::testing::HasSubstr;

TEST(KvOptions, OnlyFullIsKnown) {
  EXPECT_TRUE(check_kv_options({}).ok());
  EXPECT_TRUE(check_kv_options({{"policy", "full"}}).ok());
  const Status value = check_kv_options({{"policy", "snapkw"}});
  EXPECT_EQ(value.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(message_of(value), HasSubstr("\"snapkw\"; known policies: full"));
  EXPECT_THAT(message_of(check_kv_options({{"budged", "1"}})),
              HasSubstr("unknown key \"budged\"; known keys: policy"));
}

}  // namespace
}  // namespace pagefold
