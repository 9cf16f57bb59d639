// Whole rows over several chunks: merge, finish, exact mass, and the exponential behind them.
#include "kernels/attention_reference.h"

namespace pagefold::kernels {
namespace {

// ulp distance of a float from a double, measured at the double's magnitude.
double ulps(float got, double want) {
  if (want < 0x1p-126) return std::abs(got - want) / 0x1p-149;
  int exponent;
  std::frexp(want, &exponent);
  return std::abs(got - want) / std::ldexp(1.0, exponent - 24);
}

// The weights of a chunk whose keys are zero and whose biases are `x`: exp(x - max x).
void chunk_weights(const AttentionIsa& isa, const PagedCache& cache, const float* x, float* out) {
  const std::vector<float> q(8, 0.0f);
  Partials part(1, 8);
  ChunkCall call;
  call.log_bias = x;
  call.weights = out;
  run_chunk(isa, cache, 0, kChunkSlots, q.data(), {{0, kChunkSlots}}, 1, part, call);
}

TEST(AttentionExp, WithinTwoUlp) {
  for (const AttentionIsa& isa : attention_isas()) {
    const PagedCache cache({DType::f32, DType::f32, 8, 16}, kChunkSlots, 5, isa);
    Aligned<float> x(kChunkSlots), y(kChunkSlots);
    double worst = 0;
    for (int block = 0; block < 2000; ++block) {
      x[0] = 0.0f;  // the maximum
      for (int i = 1; i < kChunkSlots; ++i)
        x[static_cast<size_t>(i)] =
            -104.5f * static_cast<float>(block * kChunkSlots + i) / (2000 * kChunkSlots);
      chunk_weights(isa, cache, x.data(), y.data());
      for (int i = 0; i < kChunkSlots; ++i) {
        const double want = std::exp(double{x[static_cast<size_t>(i)]});
        worst = std::max(worst, ulps(y[static_cast<size_t>(i)], want));
      }
    }
    EXPECT_LE(worst, 2.0) << isa.name;
    EXPECT_GT(worst, 0.3) << isa.name << ": no rounding seen, the test looks at nothing";
    RecordProperty(isa.name, std::to_string(worst));
  }
}

TEST(AttentionExp, Edges) {
  for (const AttentionIsa& isa : attention_isas()) {
    const PagedCache cache({DType::f32, DType::f32, 8, 16}, kChunkSlots, 5, isa);
    Aligned<float> x(kChunkSlots, 0.0f), y(kChunkSlots, 7.0f);
    x[0] = -kInfinity;
    x[1] = 0.0f;
    x[2] = -0.0f;
    x[3] = -1e30f;
    x[4] = -104.0f;
    chunk_weights(isa, cache, x.data(), y.data());
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], 1.0f);
    EXPECT_EQ(y[2], 1.0f);
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_EQ(y[4], 0.0f);
    x[6] = std::numeric_limits<float>::quiet_NaN();
    chunk_weights(isa, cache, x.data(), y.data());
    EXPECT_TRUE(std::isnan(y[6])) << isa.name;
  }
}

// Weights of slots that a row does not see are zero, those of a row that sees nothing stay.
TEST(AttentionWeights, HiddenSlotsAreZero) {
  for (const AttentionIsa& isa : attention_isas()) {
    const PagedCache cache({DType::bf16, DType::bf16, 8, 16}, 200, 5, isa);
    const auto q = random_values(3 * 8, 6);
    Partials part(3, 8);
    Aligned<float> weights(3 * kChunkSlots, 7.0f);
    ChunkCall call;
    call.weights = weights.data();
    run_chunk(isa, cache, 0, 200, q.data(), {{40, 100}, {0, 0}, {0, 200}}, 1, part, call);
    for (int s = 0; s < kChunkSlots; ++s) {
      const auto at = static_cast<size_t>(s);
      EXPECT_EQ(weights[at] > 0, s >= 40 && s < 100) << isa.name << " slot " << s;
      EXPECT_EQ(weights[kChunkSlots + at], 7.0f);
      EXPECT_EQ(weights[2 * kChunkSlots + at] > 0, s < 200) << isa.name << " slot " << s;
    }
  }
}

TEST(AttentionMass, AddsEveryQueryAndStopsAtSlots) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (const bool squared : {false, true}) {
      for (int slots : {1, 7, 8, 15, 16, 17, 100, 256}) {
        const int queries = 5;
        Aligned<float> weights(queries * kChunkSlots), mass(kChunkSlots, 0.25f);
        const auto values = random_values(queries * kChunkSlots, 3);
        for (size_t i = 0; i < values.size(); ++i) weights[i] = std::abs(values[i]);
        const float factor[queries] = {0.5f, 0.125f, 0.0f, 1.0f, 0.3f};
        for (size_t i = 0; i < kChunkSlots; ++i)
          weights[2 * kChunkSlots + i] = std::numeric_limits<float>::quiet_NaN();
        isa.mass(weights.data(), factor, queries, slots, squared, mass.data());
        for (int s = 0; s < kChunkSlots; ++s) {
          double want = 0.25;
          for (int i = 0; i < queries && s < slots; ++i) {
            if (factor[i] == 0.0f) continue;
            const double p = double{weights[static_cast<size_t>(i * kChunkSlots + s)]} * factor[i];
            want += squared ? p * p : p;
          }
          ASSERT_NEAR(mass[static_cast<size_t>(s)], want, want * 8e-7)
              << isa.name << " slot " << s << " squared " << squared;
        }
      }
    }
  }
}

// One call with all queries gives the same bits as one call a query.
TEST(AttentionMass, SplittingTheQueriesChangesNoBit) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (const bool squared : {false, true}) {
      const int queries = 7, slots = 250;
      const auto weights = random_values(queries * kChunkSlots, 3);
      const auto factor = random_values(queries, 4);
      Aligned<float> once(kChunkSlots, 0.5f), one_by_one(kChunkSlots, 0.5f);
      isa.mass(weights.data(), factor.data(), queries, slots, squared, once.data());
      for (int i = 0; i < queries; ++i)
        isa.mass(weights.data() + i * kChunkSlots, factor.data() + i, 1, slots, squared,
                 one_by_one.data());
      EXPECT_TRUE(same_bits(once.data(), one_by_one.data(), kChunkSlots)) << isa.name;
    }
  }
}

TEST(AttentionMerge, WholeRowMatchesDoublePrecisionAndMassSumsToOne) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType type : kAllTypes) {
      for (int dim : {8, 40, 64, 128}) {
        const KvLayout layout{type, type, dim, 32};
        SCOPED_TRACE(std::string(isa.name) + " " + describe(layout));
        const int slots = 1000, group = 3;
        PagedCache cache(layout, slots, 21, isa);
        cache.read_back();
        const auto q = random_values(static_cast<size_t>(group * dim), 22, 2.0f);
        Partials total(group, dim);
        std::fill_n(total.m.data(), group, -kInfinity);
        Aligned<float> weights(static_cast<size_t>(4 * group * kChunkSlots));
        std::vector<float> chunk_m;
        for (int first = 0; first < slots; first += kChunkSlots) {
          Partials part(group, dim);
          const int n = std::min(kChunkSlots, slots - first);
          ChunkCall call;
          call.weights = weights.data() + first / kChunkSlots * group * kChunkSlots;
          run_chunk(isa, cache, first, n, q.data(), {{0, static_cast<int16_t>(n)}}, group, part,
                    call);
          chunk_m.insert(chunk_m.end(), part.m.data(), part.m.data() + group);
          isa.merge(group, dim, part.view(), total.view());
        }
        std::vector<float> out(static_cast<size_t>(group * (dim + 1)), 7.0f);
        isa.finish(group, dim, total.view(), out.data(), dim + 1);
        for (int h = 0; h < group; ++h) {
          double m = -kInfinity, l = 0, error = 0;
          std::vector<double> o(static_cast<size_t>(dim)), magnitude = o, rounding = o;
          std::vector<Reference> refs;
          for (int first = 0; first < slots; first += kChunkSlots) {
            refs.push_back(reference_attention(cache, first, std::min(kChunkSlots, slots - first),
                                               q.data() + h * dim, {0, 256}));
            m = std::max(m, refs.back().m);
          }
          for (const Reference& ref : refs) {
            const double w = std::exp(ref.m - m);
            l += w * ref.l;
            error = std::max(error, p_error(layout, ref));
            for (size_t d = 0; d < o.size(); ++d) {
              o[d] += w * ref.o[d];
              magnitude[d] += w * ref.magnitude[d];
              rounding[d] += w * ref.rounding[d];
            }
          }
          const double relative = error + (2 * kChunkSlots + 64) * 0x1p-24;
          for (size_t d = 0; d < o.size(); ++d)
            ASSERT_NEAR(out[static_cast<size_t>(h * (dim + 1)) + d], o[d] / l,
                        (2.1 * relative * magnitude[d] + 1.1 * rounding[d]) / l);
          EXPECT_EQ(out[static_cast<size_t>(h * (dim + 1) + dim)], 7.0f) << "written past the row";
        }
        // Mass: each head adds one over all slots; p was rounded for bfloat16 V, the mass is not.
        Aligned<float> mass(4 * kChunkSlots, 0.0f);
        for (int c = 0; c < 4; ++c) {
          std::vector<float> factor;
          for (int h = 0; h < group; ++h) {
            const auto at = static_cast<size_t>(h);
            factor.push_back(std::exp(chunk_m[static_cast<size_t>(c * group + h)] - total.m[at]) /
                             total.l[at]);
          }
          isa.mass(weights.data() + c * group * kChunkSlots, factor.data(), group,
                   std::min(kChunkSlots, slots - c * kChunkSlots), false,
                   mass.data() + c * kChunkSlots);
        }
        const double sum = std::accumulate(mass.data(), mass.data() + mass.size(), 0.0);
        EXPECT_NEAR(sum, group, group * (type == DType::bf16 ? 4e-3 : 1e-5));
      }
    }
  }
}

// Merging a part that saw nothing changes no bit; merging into nothing copies.
TEST(AttentionMerge, EmptyParts) {
  for (const AttentionIsa& isa : attention_isas()) {
    const int dim = 40;
    const auto values = random_values(dim, 4);
    Partials part(1, dim), empty(1, dim), total(1, dim);
    part.m[0] = 1.5f;
    part.l[0] = 3.25f;
    std::copy(values.begin(), values.end(), part.o.data());
    empty.m[0] = -kInfinity;
    empty.l[0] = 0.0f;
    std::fill_n(empty.o.data(), dim, 0.0f);
    total.m[0] = -kInfinity;  // l and o hold rubbish
    isa.merge(1, dim, empty.view(), total.view());
    isa.merge(1, dim, part.view(), total.view());
    isa.merge(1, dim, empty.view(), total.view());
    EXPECT_EQ(total.m[0], 1.5f);
    EXPECT_EQ(total.l[0], 3.25f) << isa.name;
    EXPECT_TRUE(same_bits(total.o.data(), part.o.data(), dim)) << isa.name;

    float out[dim];
    isa.finish(1, dim, empty.view(), out, dim);
    for (float v : out) EXPECT_EQ(v, 0.0f);
  }
}

}  // namespace
}  // namespace pagefold::kernels
