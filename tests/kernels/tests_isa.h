// Every test of a kernel runs on every implementation this CPU has.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace pagefold::kernels::test {

inline std::vector<const Kernels*> all_kernels() {
  int count = 0;
  const Kernels* const* list = available_kernels(&count);
  return {list, list + count};
}
inline std::string isa_name(const ::testing::TestParamInfo<const Kernels*>& info) {
  return std::string(info.param->name);
}

}  // namespace pagefold::kernels::test
