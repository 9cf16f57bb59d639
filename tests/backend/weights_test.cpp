// Quantised weights on the CPU device: every kind of value, orders of inputs, and what int8 inputs
// refuse. All numbers are small integers, so every sum is exact in any order.
#include "backend/cpu/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/cpu_backend.h"

namespace pagefold::cpu {
namespace {

constexpr int kIn = 128;

// A number of draw `index` of stream `seed` (SplitMix64's mixing function).
uint64_t splitmix(uint64_t seed, uint64_t index) {
  uint64_t z = (seed * 1000003 + index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Weights whose source row, in the file's order of inputs, is values[row].
struct Source final : MatrixSource {
  Source(QuantSource q, int outputs, uint64_t seed, std::vector<int32_t> input_order = {})
      : order(std::move(input_order)), spec(q), n(outputs) {
    spec.order = order;
    uint64_t draw = 0;
    const auto groups = static_cast<size_t>(kIn / spec.group);
    for (int r = 0; r < n; ++r) {
      std::vector<float> row(kIn);
      for (size_t g = 0; g < groups; ++g) {
        scale.push_back(static_cast<float>(1 << (splitmix(seed, draw++) % 3)));
        zero.push_back(static_cast<float>(splitmix(seed, draw++) % 16));
      }
      for (size_t j = 0; j < kIn; ++j) {
        const int bits = static_cast<int>(splitmix(seed, draw++) >> 32);
        const int code = spec.values == QuantValues::fp8 ? (bits & 0x80) | 0x38 | (bits & 0x18)
                         : spec.bits == 4                ? bits & 15
                                                         : (bits & 255) - 128;
        q_values.push_back(static_cast<int8_t>(code));
        const size_t at = static_cast<size_t>(r) * groups + j / static_cast<size_t>(spec.group);
        float v = static_cast<float>(q_values.back());
        if (spec.values == QuantValues::table) v = spec.table[static_cast<size_t>(code)];
        if (spec.values == QuantValues::fp8)  // 1, 2, 4, ... with a sign
          v = static_cast<float>((code & 0x80) ? -1 : 1) * std::ldexp(1.0f, (code >> 3 & 15) - 7);
        if (spec.has_zero) v -= zero[at];
        row[order.empty() ? j : static_cast<size_t>(order[j])] = v * scale[at];
      }
      values.push_back(std::move(row));
    }
  }
  int64_t n_out() const override { return n; }
  int64_t n_in() const override { return kIn; }
  DType stored_dtype() const override { return DType::f32; }
  const QuantSource* quant() const override { return &spec; }
  void row_f32(int64_t row, float* out) const override {
    std::copy_n(values[static_cast<size_t>(row)].data(), kIn, out);
  }
  void row_quant(int64_t row, int8_t* q, float* s, float* min) const override {
    const int64_t groups = kIn / spec.group;
    std::copy_n(q_values.data() + row * kIn, kIn, q);
    std::copy_n(scale.data() + row * groups, groups, s);
    if (min != nullptr) std::copy_n(zero.data() + row * groups, groups, min);
  }

  std::vector<int32_t> order;
  QuantSource spec;
  int n;
  std::vector<int8_t> q_values;
  std::vector<float> scale, zero;
  std::vector<std::vector<float>> values;
};

std::vector<int32_t> shuffled(uint64_t seed) {
  std::vector<int32_t> order(kIn);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = kIn - 1; i > 0; --i) std::swap(order[i], order[splitmix(seed, i) % (i + 1)]);
  return order;
}

QuantSource linear(int bits, int group, bool zero) {
  QuantSource q;
  q.bits = bits;
  q.group = group;
  q.has_zero = zero;
  return q;
}
QuantSource table(int group, float factor) {
  QuantSource q = linear(4, group, false);
  q.values = QuantValues::table;
  for (int i = 0; i < 16; ++i) q.table[static_cast<size_t>(i)] = static_cast<float>(i - 7) * factor;
  return q;
}
QuantSource fp8(int group) {
  QuantSource q = linear(8, group, false);
  q.values = QuantValues::fp8;
  return q;
}

// y = W x through the device for 3 rows; inputs are +-127, which int8 holds exactly.
void expect_products(const std::vector<const Source*>& parts, Activations activations) {
  for (const char* isa : {"scalar", "auto"}) {
    auto kernels = kernels::select_kernels(isa);
    ASSERT_TRUE(kernels.ok());
    CpuBackendOptions options;
    options.threads = 2;
    options.dtype = DType::f32;
    options.activations = activations;
    CpuBackend backend(**kernels, options);
    const std::vector<const MatrixSource*> sources(parts.begin(), parts.end());
    const auto id = backend.load_matrix(sources);
    ASSERT_TRUE(id.ok()) << message_of(id.status());
    int outputs = 0;
    for (const Source* p : parts) outputs += p->n;
    ASSERT_TRUE(backend.init_step({3, 1, 3}).ok());
    const BufferId in = backend.make_buffer(kIn).value();
    const BufferId out = backend.make_buffer(outputs).value();
    float* x = backend.buffer_data(in);
    for (size_t i = 0; i < 3 * kIn; ++i) x[i] = splitmix(77, i) % 2 == 0 ? 127.0f : -127.0f;
    const std::vector<float> kept(x, x + 3 * kIn);
    backend.norm_linear(3, in, VectorId{}, 0, *id, VectorId{}, out);
    for (size_t r = 0; r < 3; ++r) {
      size_t column = 0;
      for (const Source* p : parts) {
        for (const std::vector<float>& w : p->values) {
          const float want = std::inner_product(
              w.begin(), w.end(), kept.begin() + static_cast<ptrdiff_t>(r * kIn), 0.0f);
          ASSERT_EQ(backend.buffer_data(out)[r * static_cast<size_t>(outputs) + column], want)
              << isa << " row " << r << " output " << column;
          ++column;
        }
      }
    }
  }
}

TEST(Weights, EveryKindOfValueIsMultipliedExactly) {
  for (const int group : {32, 64, 128}) {
    for (const QuantSource& q :
         {linear(4, group, false), linear(4, group, true), linear(8, group, false),
          linear(8, group, true), table(group, 1)}) {
      const Source s(q, 21, static_cast<uint64_t>(group));
      expect_products({&s}, Activations::bits16);
      expect_products({&s}, Activations::int8);
    }
    const Source real(table(group, 0.5f), 21, 5), codes(fp8(group), 21, 6);
    for (const Source* s : {&real, &codes}) {
      expect_products({s}, Activations::bits16);
      expect_products({s}, Activations::automatic);
    }
  }
}

TEST(Weights, InputsFollowTheOrderOfTheirWeights) {
  const Source a(linear(4, 64, true), 19, 1, shuffled(1)), b(linear(8, 32, false), 16, 2),
      c(linear(4, 64, true), 5, 3, shuffled(3)), d(linear(4, 128, true), 33, 4, shuffled(1));
  for (const Activations mode : {Activations::bits16, Activations::int8}) {
    expect_products({&a}, mode);
    expect_products({&a, &b, &c, &d}, mode);
  }
}

TEST(Weights, StackedMatricesShareEqualOrders) {
  const Source a(linear(4, 64, true), 16, 1, shuffled(1)), b(linear(4, 64, true), 16, 2),
      c(linear(4, 64, true), 16, 3, shuffled(1)), d(linear(4, 64, true), 16, 3, shuffled(2));
  const MatrixSource* parts[] = {&a, &b, &c, &d};
  ThreadPool pool(1);
  LastingMemory memory;
  const Matrix m = pack_matrix(parts, {}, pool, memory).value();
  EXPECT_EQ(m.arrangements.size(), 3u);
  EXPECT_EQ(m.segments[0].arrangement, m.segments[2].arrangement);
  EXPECT_EQ(m.segments[1].arrangement, 0);
}

TEST(Weights, AnOrderThatIsNoPermutationIsRefused) {
  ThreadPool pool(1);
  LastingMemory memory;
  for (int fault = 0; fault < 4; ++fault) {
    Source s(linear(4, 64, true), 16, 1, shuffled(1));
    if (fault == 0) s.order[5] = s.order[6];
    if (fault == 1) s.order[5] = -1;
    if (fault == 2) s.order[5] = kIn;
    if (fault == 3) s.order.pop_back();
    s.spec.order = s.order;
    const MatrixSource* parts[] = {&s};
    const auto m = pack_matrix(parts, {}, pool, memory);
    ASSERT_FALSE(m.ok()) << fault;
    EXPECT_NE(message_of(m.status()).find("permutation"), std::string::npos);
  }
}

TEST(Weights, EmbeddingRowsComeInTheSourcesOrder) {
  ThreadPool pool(1);
  LastingMemory memory;
  for (const QuantSource& q : {linear(4, 64, true), table(32, 0.5f), fp8(128)}) {
    for (const bool ordered : {false, true}) {
      const Source s(q, 37, 9, ordered ? shuffled(9) : std::vector<int32_t>{});
      const MatrixSource* parts[] = {&s};
      const Matrix m = pack_matrix(parts, {}, pool, memory).value();
      std::vector<float> row(kIn);
      for (int r = 0; r < s.n; ++r) {
        m.read_row(r, row.data());
        ASSERT_EQ(row, s.values[static_cast<size_t>(r)]);
      }
    }
  }
}

TEST(Weights, ActivationsFollowTheFormat) {
  QuantSource awq = linear(4, 64, true);
  awq.wants_16bit = true;
  const auto resolved = [](const QuantSource& q, Activations a) {
    return resolve_activations(q, a).value();
  };
  EXPECT_EQ(resolved(awq, Activations::automatic), Activations::bits16);
  EXPECT_EQ(resolved(awq, Activations::int8), Activations::int8);
  EXPECT_EQ(resolved(linear(4, 32, false), Activations::automatic), Activations::int8);
  EXPECT_EQ(resolved(linear(4, 32, false), Activations::bits16), Activations::bits16);
  EXPECT_EQ(resolved(table(32, 1), Activations::automatic), Activations::int8);
  EXPECT_EQ(resolved(table(32, 0.5f), Activations::automatic), Activations::bits16);
  EXPECT_EQ(resolved(fp8(32), Activations::automatic), Activations::bits16);
  for (const QuantSource& q : {table(32, 0.5f), fp8(32)}) {
    const auto refused = resolve_activations(q, Activations::int8);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(message_of(refused.status()).find("activations auto or 16"), std::string::npos);
    const Source s(q, 16, 1);
    const MatrixSource* parts[] = {&s};
    ThreadPool pool(1);
    LastingMemory memory;
    EXPECT_FALSE(pack_matrix(parts, {DType::f32, Activations::int8}, pool, memory).ok());
  }
}

}  // namespace
}  // namespace pagefold::cpu
