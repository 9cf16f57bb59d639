// Exact attention mass of observed rows, against a dense reference in double precision.
#include "backend/attention_rig.h"

namespace pagefold {
namespace {

// Runs `total` rows in steps of `chunk` rows, the last `decode` one at a time, and observes rows
// [first, last).
std::vector<float> run(Rig& rig, Observed* seen, int total, int chunk, int decode, int first,
                       int last, bool squared = false) {
  std::vector<float> out;
  while (rig.len() < total) {
    const int at = static_cast<int>(rig.len());
    const int rows = at < total - decode ? std::min(chunk, total - decode - at) : 1;
    const int begin = std::clamp(first - at, 0, rows), end = std::clamp(last - at, 0, rows);
    SeqSignals s;
    if (seen != nullptr) s = seen->rows(begin, end - begin, squared);
    const auto part = rig.step(rows, seen != nullptr ? &s : nullptr);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

void expect_mass(Rig& rig, const Observed& seen, int total, int first, int last,
                 bool squared = false) {
  const RigOptions& o = rig.options();
  for (int kv = 0; kv < o.n_kv_heads; ++kv) {
    std::vector<double> want(static_cast<size_t>(total), 0.0);
    for (int row = first; row < last; ++row) {
      for (int g = 0; g < rig.group(); ++g) {
        const auto p = rig.probabilities(row, kv * rig.group() + g);
        for (size_t s = 0; s < p.size(); ++s) want[s] += squared ? p[s] * p[s] : p[s] / rig.group();
      }
    }
    // L sums weights that were rounded for bfloat16 values: half an ulp each, 2^-9.
    const double relative = (o.dtype == DType::bf16 ? 0x1p-9 : 2e-5) * (squared ? 2 : 1);
    double sum = 0, rows = last - first;
    for (size_t s = 0; s < want.size(); ++s) {
      const float got = seen.mass[static_cast<size_t>(kv)][s];
      sum += got;
      ASSERT_NEAR(got, want[s], relative * want[s] + 1e-7) << "head " << kv << " slot " << s;
    }
    const double near = o.dtype == DType::bf16 ? 1e-3 : 1e-5;
    if (!squared) {
      EXPECT_NEAR(sum / rows, 1.0, near) << "head " << kv;
    }
    for (size_t s = want.size(); s < seen.mass[0].size(); ++s)
      ASSERT_EQ(seen.mass[static_cast<size_t>(kv)][s], 0.0f);
  }
}

TEST(Mass, EveryShapeAndType) {
  struct Heads {
    int n, kv;
  };
  for (const Heads heads : {Heads{2, 2}, Heads{6, 2}, Heads{4, 1}}) {
    for (const int dim : {64, 80, 96, 128}) {
      for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
        RigOptions o{.n_heads = heads.n, .n_kv_heads = heads.kv, .head_dim = dim, .dtype = type};
        o.block_size = dim == 80 ? 32 : 16;
        SCOPED_TRACE(::testing::Message() << heads.n << "/" << heads.kv << " dim " << dim);
        Rig rig(o);
        Observed seen(o);
        // Across the kernels' chunk of 256 slots. All rows once, else the last ones: the reference
        // takes most of the time.
        const int first = dim == 64 ? 0 : 230;
        run(rig, &seen, 290, 64, 3, first, 290);
        expect_mass(rig, seen, 290, first, 290);
      }
    }
  }
}

TEST(Mass, SquaredIsSummedOverTheGroup) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const RigOptions o{.dtype = type};
    Rig rig(o);
    Observed seen(o);
    run(rig, &seen, 530, 512, 4, 0, 530, true);
    expect_mass(rig, seen, 530, 0, 530, true);
  }
}

// A window of rows that lies across chunks, with decode rows behind it.
TEST(Mass, WindowOfRowsAcrossChunks) {
  for (const int chunk : {16, 64, 512}) {
    const RigOptions o{.dtype = DType::f32};
    Rig rig(o);
    Observed seen(o);
    run(rig, &seen, 600, chunk, 5, 501, 533);
    expect_mass(rig, seen, 600, 501, 533);
  }
}

TEST(Mass, SlidingWindowLayer) {
  const RigOptions o{.dtype = DType::f32, .window = 300};
  Rig rig(o);
  Observed seen(o);
  run(rig, &seen, 700, 64, 5, 0, 700);
  expect_mass(rig, seen, 700, 0, 700);
}

// Neither outputs nor mass depend on chunks or threads, and observing changes no output.
TEST(Mass, SameBitsForAnyChunkAndThreads) {
  for (const bool squared : {false, true}) {
    const int total = 600;
    const RigOptions base{.n_heads = 6, .n_kv_heads = 2};
    Rig plain(base);
    const auto want_out = run(plain, nullptr, total, 512, 4, 0, 0);
    Rig first(base);
    Observed want(base);
    ASSERT_EQ(run(first, &want, total, 512, 4, 100, total, squared), want_out);
    for (const int threads : {1, 2, 3}) {
      for (const int chunk : {1, 16, 64, 512}) {
        RigOptions o = base;
        o.threads = threads;
        o.seed = base.seed;
        Rig rig(o);
        Observed seen(o);
        SCOPED_TRACE(::testing::Message() << threads << " threads, chunks of " << chunk);
        ASSERT_EQ(run(rig, &seen, total, chunk, 4, 100, total, squared), want_out);
        ASSERT_EQ(seen.mass, want.mass);
      }
    }
  }
}

}  // namespace
}  // namespace pagefold
