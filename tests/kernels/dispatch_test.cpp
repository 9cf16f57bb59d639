#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/kernels.h"

namespace pagefold::kernels {
namespace {

class Dispatch : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("PAGEFOLD_ISA"); }
  void TearDown() override { unsetenv("PAGEFOLD_ISA"); }
};

TEST_F(Dispatch, ScalarIsFirstAndEveryEntryIsFilled) {
  int count = 0;
  const Kernels* const* list = available_kernels(&count);
  ASSERT_GE(count, 1);
  EXPECT_EQ(list[0]->name, "scalar");
  for (int i = 0; i < count; ++i) {
    const Kernels& k = *list[i];
    EXPECT_TRUE(k.matmul && k.quantize_rows && k.to_bf16 && k.round_to && k.rms_norm &&
                k.silu_mul && k.rope && k.kv_append && k.attention_prepare_q && k.attention_chunk &&
                k.attention_merge && k.attention_finish)
        << k.name;
  }
}

TEST_F(Dispatch, AutoIsTheBestAndNamesSelect) {
  int count = 0;
  const Kernels* const* list = available_kernels(&count);
  const auto best = select_kernels("auto");
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(*best, list[count - 1]);
  for (int i = 0; i < count; ++i) {
    const auto k = select_kernels(list[i]->name);
    ASSERT_TRUE(k.ok());
    EXPECT_EQ(*k, list[i]);
  }
}

TEST_F(Dispatch, UnknownNameListsWhatCanBeHad) {
  for (const char* name : {"", "avx", "AVX2", "neon"}) {
    const auto k = select_kernels(name);
    ASSERT_FALSE(k.ok()) << name;
    EXPECT_EQ(k.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(message_of(k.status()).find("auto, scalar"), std::string::npos)
        << message_of(k.status());
  }
}

TEST_F(Dispatch, EnvironmentOverridesAutoOnly) {
  setenv("PAGEFOLD_ISA", "scalar", 1);
  auto k = select_kernels("auto");
  ASSERT_TRUE(k.ok());
  EXPECT_EQ((*k)->name, "scalar");
  setenv("PAGEFOLD_ISA", "sse9", 1);
  k = select_kernels("auto");
  ASSERT_FALSE(k.ok());
  EXPECT_NE(message_of(k.status()).find("PAGEFOLD_ISA"), std::string::npos);
  EXPECT_TRUE(select_kernels("scalar").ok());
  setenv("PAGEFOLD_ISA", "", 1);
  EXPECT_TRUE(select_kernels("auto").ok());
}

}  // namespace
}  // namespace pagefold::kernels
