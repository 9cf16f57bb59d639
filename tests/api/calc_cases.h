// The recorded cases of the calculator, and short ways to ask it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "base/json.h"
#include "pagefold/calc.h"

namespace pagefold::testing {

inline Json calc_fixture(const std::string& name) {
  const auto text =
      read_file(std::string(PAGEFOLD_SOURCE_DIR) + "/tests/calc/fixtures/" + name, 1 << 20);
  if (!text.ok()) {
    ADD_FAILURE() << text.status();
    return Json::object();
  }
  return parse_json(*text).value_or(Json::object());
}

inline CalcResult calculated(const CalcRequest& request) {
  auto result = calculate(request);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : CalcResult();
}

inline CalcRequest by_hand(int64_t layers, int64_t kv_heads, int64_t head_dim, int64_t tokens) {
  CalcRequest q;
  q.shape.layers = layers;
  q.shape.kv_heads = kv_heads;
  q.shape.head_dim = head_dim;
  q.tokens = tokens;
  return q;
}

inline CalcRequest of_config(const Json& config, int64_t tokens) {
  CalcRequest q;
  q.config_json = dump_json(config);
  q.tokens = tokens;
  return q;
}

}  // namespace pagefold::testing
