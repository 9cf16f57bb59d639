// Every tensor type from its file bytes through packing to a product, against float64 on the
// dequantised values (which tests/formats compares with the gguf package).
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/half.h"
#include "model/model_runner.h"
#include "model/tensor_source.h"
#include "model/tiny_model.h"

namespace pagefold::testing {
namespace {

constexpr int64_t kIn = 512, kRows = 5;

// Random bytes with sane float16 numbers where the block has them.
struct BlockTensor {
  Bytes bytes;
  TensorInfo info;
  std::vector<float> values;
  BlockTensor(TensorType type, int64_t n_out, uint64_t seed) {
    static const std::map<TensorType, std::vector<size_t>> halves = {
        {TensorType::Q4_0, {0}},    {TensorType::Q4_1, {0, 2}}, {TensorType::Q5_0, {0}},
        {TensorType::Q5_1, {0, 2}}, {TensorType::Q8_0, {0}},    {TensorType::Q2_K, {80, 82}},
        {TensorType::Q3_K, {108}},  {TensorType::Q4_K, {0, 2}}, {TensorType::Q5_K, {0, 2}},
        {TensorType::Q6_K, {208}},  {TensorType::IQ4_NL, {0}},  {TensorType::MXFP4, {}}};
    const TensorTypeInfo& t = tensor_type_info(type);
    const int64_t n = n_out * kIn;
    uint64_t draw = 0;
    if (halves.contains(type)) {
      const auto block = static_cast<size_t>(t.block_bytes);
      bytes.resize(static_cast<size_t>(n / t.block_elements) * block);
      for (std::byte& b : bytes) b = static_cast<std::byte>(splitmix(seed, draw++) >> 56);
      for (size_t at = 0; at < bytes.size(); at += block) {
        // An exponent of two near one.
        if (type == TensorType::MXFP4)
          bytes[at] = static_cast<std::byte>(118 + splitmix(seed, draw++) % 8);
        for (const size_t h : halves.at(type)) {
          const auto u = static_cast<float>(splitmix(seed, draw++) >> 40) * 0x1p-24f;
          const uint16_t bits = f32_to_f16((u - 0.5f) * 0.02f);
          std::memcpy(bytes.data() + at + h, &bits, 2);
        }
      }
    } else {
      std::vector<float> plain;
      for (int64_t i = 0; i < n; ++i)
        plain.push_back(static_cast<float>(splitmix(seed, draw++) >> 40) * 0x1p-24f - 0.5f);
      bytes = quantize(type, plain);
    }
    info = {.name = "w", .type = type, .shape = {n_out, kIn}, .data = bytes, .file = "f"};
    values.resize(static_cast<size_t>(n));
    dequantize(type, bytes.data(), n, values.data());
  }
};

struct Products {
  std::vector<float> x;  // [kRows][kIn], each of root mean square 1
  std::vector<float> y;  // [kRows][n_out]
};

// x through embed, then the head's product of the normed rows (x itself, since its norm is 1).
Products multiply(const BlockTensor& w, int64_t n_out, const CpuBackendOptions& options) {
  auto backend = make_cpu_backend(options).value();
  Products p;
  for (int64_t r = 0; r < kRows; ++r) {
    double sum = 0;
    std::vector<double> row;
    for (int64_t i = 0; i < kIn; ++i) {
      row.push_back(static_cast<double>(splitmix(99 + r, i) >> 40) * 0x1p-24 - 0.5);
      sum += row.back() * row.back();
    }
    for (const double v : row) p.x.push_back(static_cast<float>(v / std::sqrt(sum / kIn)));
  }
  const Bytes table = quantize(TensorType::F32, p.x);
  const TensorInfo table_info{"x", TensorType::F32, {kRows, kIn}, table, "f"};
  const auto source = TensorSource::make(table_info, kRows, kIn).value();
  const MatrixSource* parts[] = {&source};
  const MatrixId x = backend->load_matrix(parts).value();
  const auto weights = TensorSource::make(w.info, n_out, kIn).value();
  parts[0] = &weights;
  const MatrixId head = backend->load_matrix(parts).value();
  const VectorId ones = backend->load_vector(std::vector<float>(kIn, 1.0f)).value();
  EXPECT_TRUE(backend->init_step({kRows, 1, kRows}).ok());
  const BufferId buffer = backend->make_buffer(kIn).value();
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  backend->embed(rows, x, 1.0f, buffer);
  p.y.assign(static_cast<size_t>(kRows * n_out), NAN);
  backend->logits(rows, buffer, ones, 0.0f, head, p.y.data());
  return p;
}

TEST(BlockMatmul, EveryTypeEqualsFloat64) {
  constexpr int64_t kOut = 37;  // no whole number of tiles
  for (int t = 0; t <= static_cast<int>(TensorType::MXFP4); ++t) {
    const auto type = static_cast<TensorType>(t);
    const BlockTensor w(type, kOut, 7 + static_cast<uint64_t>(t));
    for (const std::string& isa : all_isas()) {
      for (const bool int8 : {false, true}) {
        const Products p =
            multiply(w, kOut,
                     {.isa = isa,
                      .threads = 2,
                      .dtype = DType::f32,
                      .activations = int8 ? Activations::int8 : Activations::bits16});
        for (int64_t i = 0; i < kRows * kOut; ++i) {
          const float *x = p.x.data() + i / kOut * kIn, *v = w.values.data() + i % kOut * kIn;
          double sum = 0, bound = 0;
          for (int64_t g = 0; g < kIn; g += 32) {
            double largest = 0, weight = 0;
            for (int64_t k = g; k < g + 32; ++k) {
              sum += double{x[k]} * v[k];
              largest = std::max(largest, std::abs(double{x[k]}));
              weight += std::abs(double{v[k]});
            }
            // float32 sums; int8 inputs are off by half a step at most
            bound += largest * weight * (1e-5 + (int8 && t > 2 ? 0.505 / 127 : 0));
          }
          ASSERT_NEAR(p.y[static_cast<size_t>(i)], sum, bound)
              << tensor_type_info(type).name << " " << isa << (int8 ? " int8" : "");
        }
      }
    }
  }
}

// Parts of different types stacked, as q, k and v of mixed GGUF files are.
TEST(BlockMatmul, StackedPartsOfDifferentTypes) {
  const BlockTensor q(TensorType::Q4_K, 16, 1), k(TensorType::Q6_K, 24, 2),
      v(TensorType::F16, 8, 3);
  const std::vector<const BlockTensor*> all = {&q, &k, &v};
  for (const std::string& isa : all_isas()) {
    auto backend =
        make_cpu_backend(
            {.isa = isa, .threads = 3, .dtype = DType::f32, .activations = Activations::bits16})
            .value();
    std::vector<float> x(kIn), identity(48 * 48, 0.0f), want;
    for (int64_t i = 0; i < kIn; ++i)
      x[static_cast<size_t>(i)] = static_cast<float>(splitmix(5, i) >> 40) * 0x1p-24f - 0.5f;
    std::vector<TensorSource> sources;
    for (const BlockTensor* b : all) {
      sources.push_back(TensorSource::make(b->info, b->info.shape[0], kIn).value());
      for (int64_t o = 0; o < b->info.shape[0]; ++o)
        want.push_back(std::inner_product(x.begin(), x.end(), b->values.begin() + o * kIn, 0.0f));
    }
    const MatrixSource* parts[] = {&sources[0], &sources[1], &sources[2]};
    const MatrixId stacked = backend->load_matrix(parts).value();
    for (size_t i = 0; i < 48; ++i) identity[i * 49] = 1;
    const Bytes xb = quantize(TensorType::F32, x), ib = quantize(TensorType::F32, identity);
    const TensorInfo xi{"x", TensorType::F32, {1, kIn}, xb, "f"};
    const TensorInfo ii{"i", TensorType::F32, {48, 48}, ib, "f"};
    const auto xs = TensorSource::make(xi, 1, kIn).value();
    const auto is = TensorSource::make(ii, 48, 48).value();
    const MatrixSource *xp[] = {&xs}, *ip[] = {&is};
    const MatrixId table = backend->load_matrix(xp).value(), one = backend->load_matrix(ip).value();
    const VectorId ones = backend->load_vector(std::vector<float>(48, 1.0f)).value();
    ASSERT_TRUE(backend->init_step({1, 1, 1}).ok());
    const BufferId in = backend->make_buffer(kIn).value(), out = backend->make_buffer(48).value();
    const int32_t zero[] = {0};
    backend->embed(zero, table, 1.0f, in);
    backend->norm_linear(1, in, VectorId{}, 0, stacked, VectorId{}, out);  // no norm
    std::vector<float> got(48);
    backend->logits(zero, out, ones, 0, one, got.data());  // normed: the same up to one factor
    double square = 0;
    for (const float w : want) square += double{w} * w;
    const double norm = std::sqrt(square / 48);
    for (size_t i = 0; i < 48; ++i) EXPECT_NEAR(got[i], want[i] / norm, 2e-5) << isa << " " << i;
  }
}

}  // namespace
}  // namespace pagefold::testing
