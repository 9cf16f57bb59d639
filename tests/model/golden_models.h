// The recorded logits of tests/model/golden/models.json (tools/record_models.py).
#pragma once

#include <absl/strings/escaping.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/model_runner.h"
#include "model/tiny_model.h"

namespace pagefold::testing {

struct GoldenModel {
  static constexpr int64_t kColumns = 16;
  std::string name;
  Json config;
  std::vector<int32_t> tokens;
  // The last row first, then every one before (or every 13th of long prompts).
  std::vector<int64_t> rows;
  std::vector<float> logits;       // [rows][16]: columns (7 row + 10 j) % vocab
  std::vector<float> log_sum_exp;  // [rows]
  int64_t vocab() const { return config["vocab_size"].get<int64_t>(); }
};

inline std::vector<float> floats_of(const Json& base64) {
  std::string raw;
  if (!absl::Base64Unescape(base64.get<std::string>(), &raw)) throw std::runtime_error("base64");
  std::vector<float> out(raw.size() / sizeof(float));
  std::memcpy(out.data(), raw.data(), raw.size());
  return out;
}

inline const std::vector<GoldenModel>& golden_models() {
  static const std::vector<GoldenModel> all = [] {
    const auto text = read_file(PAGEFOLD_SOURCE_DIR "/tests/model/golden/models.json", 1 << 20);
    const auto json = parse_json(text.value());
    std::vector<GoldenModel> list;
    for (const auto& [name, entry] : json.value().items()) {
      if (!entry.is_object()) continue;
      GoldenModel g;
      g.name = name;
      g.config = entry["config"];
      const auto n = entry["tokens"].get<int64_t>();
      g.tokens = tiny_tokens(n, g.vocab());
      for (int64_t r = n - 1; r >= 0; r -= n <= 70 ? 1 : 13) g.rows.push_back(r);
      g.logits = floats_of(entry["logits"]);
      g.log_sum_exp = floats_of(entry["log_sum_exp"]);
      list.push_back(std::move(g));
    }
    return list;
  }();
  return all;
}
inline const GoldenModel& golden_model(std::string_view name) {
  for (const GoldenModel& g : golden_models()) {
    if (g.name == name) return g;
  }
  throw std::runtime_error("no such golden");
}
inline std::string golden_name(const ::testing::TestParamInfo<GoldenModel>& info) {
  return info.param.name;
}
inline void PrintTo(const GoldenModel& g, std::ostream* out) { *out << g.name; }

// The largest |ours - recorded| / max(1, |recorded|).
inline double golden_error(const GoldenModel& g, const std::vector<float>& logits) {
  double worst = 0;
  const auto see = [&](double ours, double recorded) {
    const double e = std::abs(ours - recorded) / std::max(1.0, std::abs(recorded));
    if (!(e <= worst)) worst = e;  // NaN too
  };
  EXPECT_EQ(g.logits.size(), g.rows.size() * GoldenModel::kColumns);
  for (size_t i = 0; i < g.rows.size(); ++i) {
    const float* row = logits.data() + g.rows[i] * g.vocab();
    for (int64_t j = 0; j < GoldenModel::kColumns; ++j) {
      see(row[(7 * g.rows[i] + 10 * j) % g.vocab()],
          g.logits[i * GoldenModel::kColumns + static_cast<size_t>(j)]);
    }
    double sum = 0;
    for (int64_t v = 0; v < g.vocab(); ++v) sum += std::exp(double{row[v]});
    see(std::log(sum), g.log_sum_exp[i]);
  }
  return worst;
}

}  // namespace pagefold::testing
