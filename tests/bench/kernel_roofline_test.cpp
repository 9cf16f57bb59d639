#include "bench/kernel_roofline.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "bench/local_report.h"

namespace pagefold::bench {
namespace {

KernelOptions tiny() {
  KernelOptions o;
  o.n_heads = 4;
  o.n_kv_heads = 2;
  o.head_dim = 64;
  o.hidden = 64;
  o.ffn = 128;
  o.matrices = {{96, 64}, {64, 128}};
  o.context = 64;
  o.rows = {1, 8};
  o.repeat = 1;
  o.bytes = 1;  // one layer of everything
  return o;
}

const KernelRow* find(const KernelTimes& t, std::string_view kernel, std::string_view type,
                      int64_t rows) {
  for (const KernelRow& r : t.rows) {
    if (r.kernel == kernel && r.type == type && r.rows == rows) return &r;
  }
  ADD_FAILURE() << kernel << ", " << type << ", " << rows;
  return &t.rows.front();
}

TEST(KernelRoofline, CountsBytesAndOperations) {
  const auto times = measure_kernels(tiny());
  ASSERT_TRUE(times.ok()) << message_of(times.status());
  for (const KernelRow& r : times->rows) {
    EXPECT_GT(r.ms, 0) << r.kernel;
    EXPECT_GT(r.bytes, 0) << r.kernel;
    EXPECT_GT(r.ops, 0) << r.kernel;
  }
  // 65 slots of 2 KV heads: a key and a value of 64 bytes, a scale of 2 each.
  const KernelRow* token = find(*times, "attention, a token", "int8", 1);
  EXPECT_EQ(token->bytes, 65 * 2 * (66 + 66));
  // 4 heads x 65 slots x 64, twice (q k and p v), a multiply-add being two.
  EXPECT_EQ(token->ops, 4 * 65 * 64 * 4);
  // Rows see 65, 66 ... 72 slots.
  const KernelRow* prompt = find(*times, "attention, a prompt", "bfloat16", 8);
  EXPECT_EQ(prompt->bytes, 72 * 2 * (128 + 128));
  EXPECT_EQ(prompt->ops, 4 * (65 + 66 + 67 + 68 + 69 + 70 + 71 + 72) * 64 * 4);
  const KernelRow* matmul = find(*times, "matmul", "bfloat16", 8);
  EXPECT_EQ(matmul->bytes, 2 * (96 * 64 + 64 * 128));
  EXPECT_EQ(matmul->ops, 2 * 8 * (96 * 64 + 64 * 128));
  // 32 weights: 16 bytes, a scale and a minimum of 2 each.
  EXPECT_EQ(find(*times, "matmul", "Q4_1, int8 inputs", 1)->bytes, (96 * 64 + 64 * 128) / 32 * 20);
}

TEST(KernelRoofline, SharesAreOfWhatWasMeasured) {
  LocalMeasurements m;
  m.read_gb_per_s = 20;
  m.kernels.isa = "avx512";
  m.kernels.peaks.f32.wall = 100;
  m.kernels.rows = {{"matmul", "float32", 1, 0, 2.0, 20e6, 10e6, 100, false},
                    {"rope", "float32", 1, 0, 1.0, 50e6, 10e6, 0, true}};
  const BenchReport report = local_report(m, true);
  const Json rows = (*parse_json(report.json))["kernels"]["rows"];
  EXPECT_DOUBLE_EQ(rows[0]["gb_per_s"].get<double>(), 10);
  EXPECT_DOUBLE_EQ(rows[0]["share_of_bandwidth"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(rows[0]["gops"].get<double>(), 5);
  EXPECT_DOUBLE_EQ(rows[0]["share_of_peak"].get<double>(), 0.05);
  EXPECT_TRUE(rows[1]["share_of_bandwidth"].is_null()) << "its bytes lie in the caches";
  EXPECT_TRUE(rows[1]["share_of_peak"].is_null());
  EXPECT_NE(report.text.find("50 %"), std::string::npos) << report.text;
  EXPECT_NE(report.html.find("Every kernel by itself"), std::string::npos);
}

}  // namespace
}  // namespace pagefold::bench
