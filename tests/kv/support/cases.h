// The worked cases of tests/kv/cases: 2 KV heads, 4 query heads, 8 dims, 24 tokens unless a file
// says otherwise; made in float64 by two independent implementations. Ties: the lower token.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "kv/support/world.h"

namespace pagefold::testing {

inline Json load_case(const std::string& name) {
  auto text =
      read_file(std::string(PAGEFOLD_SOURCE_DIR) + "/tests/kv/cases/" + name + ".json", 1 << 20);
  EXPECT_TRUE(text.ok());
  auto json = parse_json(text.ok() ? *text : "{}");
  EXPECT_TRUE(json.ok());
  return json.ok() ? *json : Json::object();
}

inline std::vector<float> floats(const Json& j) { return j.get<std::vector<float>>(); }
inline std::vector<int32_t> ints(const Json& j) { return j.get<std::vector<int32_t>>(); }

inline void expect_near(const std::vector<float>& got, const Json& want, double absolute = 1e-5,
                        double relative = 1e-4) {
  ASSERT_GE(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const double w = want[i].get<double>();
    EXPECT_NEAR(static_cast<double>(got[i]), w, absolute + relative * std::abs(w)) << "at " << i;
  }
}

// q[query head][token][dim], k[KV head][token][dim] of a case.
struct CaseInput {
  explicit CaseInput(const Json& file) {
    q = file["input"]["q"].get<std::vector<std::vector<std::vector<double>>>>();
    k = file["input"]["k"].get<std::vector<std::vector<std::vector<double>>>>();
    group = static_cast<int>(q.size() / k.size());
  }
  KvModel model() const {
    return small_model(1, static_cast<int>(q.size()), static_cast<int>(k.size()),
                       static_cast<int>(q[0][0].size()));
  }
  double logit(size_t head, int64_t query, size_t kv, int64_t key) const {
    double s = 0;
    const auto& a = q[head][static_cast<size_t>(query)];
    const auto& b = k[kv][static_cast<size_t>(key)];
    for (size_t c = 0; c < a.size(); ++c) s += a[c] * b[c];
    return s / std::sqrt(static_cast<double>(a.size()));
  }
  RowFn rows() const {
    return [this](int, int head, int g, int64_t query, const int32_t* pos, int64_t n, float* p) {
      std::vector<double> e(static_cast<size_t>(n));
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double s =
            logit(static_cast<size_t>(head * group + g), query, static_cast<size_t>(head), pos[i]);
        sum += e[static_cast<size_t>(i)] = std::exp(s);
      }
      for (int64_t i = 0; i < n; ++i) p[i] = static_cast<float>(e[static_cast<size_t>(i)] / sum);
    };
  }
  // [rows][dim] of one KV head.
  std::vector<float> keys(size_t kv) const {
    std::vector<float> out;
    for (const auto& token : k[kv]) {
      for (const double x : token) out.push_back(static_cast<float>(x));
    }
    return out;
  }
  std::vector<std::vector<std::vector<double>>> q, k;
  int group = 1;
};

// A sequence of the case's model under `words`.
struct CaseLife {
  CaseLife(const CaseInput& in, const KvOptions& words, int64_t n_prompt)
      : world(in.model(), 256),
        compactor(world.model),
        life(world, compactor, plan_of(world.model, words), n_prompt, 1, in.rows(),
             random_keys(1)) {}
  std::vector<std::vector<int32_t>> kept() const {
    std::vector<std::vector<int32_t>> out;
    for (int t = 0; t < world.model.n_tables(); ++t) out.push_back(life.positions(t));
    return out;
  }
  World world;
  Compactor compactor;
  Life life;
};

inline std::vector<std::vector<int32_t>> sets(const Json& j) {
  return j.get<std::vector<std::vector<int32_t>>>();
}

}  // namespace pagefold::testing
