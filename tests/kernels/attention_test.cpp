// The chunk kernel against double precision, and its masks, bias and scores.
#include "kernels/attention_reference.h"

namespace pagefold::kernels {
namespace {

void check_rows(const AttentionIsa& isa, PagedCache& cache, int first, int slots, int group,
                const std::vector<RowRange>& rows, ChunkCall call = {}) {
  const int n = static_cast<int>(rows.size()) * group;
  const int dim = cache.layout.head_dim;
  if (cache.stored_k.empty()) cache.read_back();
  const auto q = random_values(static_cast<size_t>(n * dim), 77, 3.0f);
  Partials out(n, dim);
  Aligned<float> scores(static_cast<size_t>(n * kChunkSlots), 9.0f);
  call.scores = scores.data();
  run_chunk(isa, cache, first, slots, q.data(), rows, group, out, call);
  for (int i = 0; i < n; ++i) {
    SCOPED_TRACE("query " + std::to_string(i));
    const Reference ref = reference_attention(cache, first, slots, q.data() + i * dim,
                                              rows[static_cast<size_t>(i / group)], call);
    expect_close(cache.layout, ref, out.m[static_cast<size_t>(i)], out.l[static_cast<size_t>(i)],
                 out.o.data() + i * dim);
    for (int s = 0; s < kChunkSlots; ++s) {
      const float got = scores[static_cast<size_t>(i * kChunkSlots + s)];
      const double want = ref.logits[static_cast<size_t>(s)];
      if (want == -kInfinity)
        ASSERT_EQ(got, -kInfinity) << "slot " << s;
      else
        ASSERT_NEAR(got, want, ref.logit_error) << "slot " << s;
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(AttentionChunk, MatchesDoublePrecision) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType k : kAllTypes) {
      for (DType v : kAllTypes) {
        for (int dim : {8, 40, 64, 80, 96, 112, 128, 256}) {
          if (!worth_testing(k, v, dim)) continue;
          for (const KvLayout& layout : with_groups({k, v, dim,
                                                     dim == 64   ? 32
                                                     : dim == 96 ? 64
                                                                 : 16})) {
            SCOPED_TRACE(std::string(isa.name) + " " + describe(layout));
            PagedCache cache(layout, 256 + 147, 5, isa);
            check_rows(isa, cache, 0, 256, 3,
                       {{0, 256}, {0, 131}, {17, 200}, {30, 30}, {255, 256}});
            check_rows(isa, cache, 256, 147, 2, {{0, 147}, {0, 1}, {100, 147}});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(AttentionChunk, EverySlotCountAndGroup) {
  for (const AttentionIsa& isa : attention_isas()) {
    const KvLayout layout{DType::bf16, DType::bf16, 64, 32};
    for (int slots = 1; slots <= 256; ++slots) {
      SCOPED_TRACE(std::string(isa.name) + " slots " + std::to_string(slots));
      PagedCache cache(layout, slots, 6, isa);
      check_rows(isa, cache, 0, slots, 1 + slots % 9,
                 {{0, static_cast<int16_t>(slots)}, {static_cast<int16_t>(slots / 3), 256}});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(AttentionChunk, BiasAndLiveMask) {
  std::mt19937 rng(4);
  uint32_t live[8];
  for (uint32_t& word : live) word = rng();
  live[2] = 0;
  live[3] = ~0u;
  const auto bias = random_values(kChunkSlots, 8, 2.0f);
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType type : kAllTypes) {
      const KvLayout layout{type, type, 64, 16};
      SCOPED_TRACE(std::string(isa.name) + " " + describe(layout));
      PagedCache cache(layout, 250, 7, isa);
      ChunkCall call;
      call.live = live;
      check_rows(isa, cache, 0, 250, 3, {{0, 250}, {64, 96}, {5, 77}}, call);
      call.log_bias = bias.data();
      check_rows(isa, cache, 0, 250, 3, {{0, 250}, {64, 96}, {5, 77}}, call);
      call.live = nullptr;
      check_rows(isa, cache, 0, 250, 4, {{0, 250}}, call);
      if (HasFatalFailure()) return;
    }
  }
}

// A bias of -inf hides a slot; all hidden is the same as seeing nothing.
TEST(AttentionChunk, InfiniteBiasHides) {
  for (const AttentionIsa& isa : attention_isas()) {
    PagedCache cache({DType::bf16, DType::bf16, 64, 16}, 64, 7, isa);
    std::vector<float> bias(kChunkSlots, -kInfinity);
    ChunkCall call;
    call.log_bias = bias.data();
    check_rows(isa, cache, 0, 64, 2, {{0, 64}}, call);
    bias[33] = 0.5f;
    check_rows(isa, cache, 0, 64, 2, {{0, 64}}, call);
  }
}

// A NaN that is visible must reach the output: it must not pass for a quiet answer.
TEST(AttentionChunk, VisibleNanShows) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType type : kAllTypes) {
      for (bool all : {false, true}) {
        PagedCache cache({type, type, 64, 16}, 40, 7, isa);
        std::fill_n(cache.k.begin(), all ? 40 * 64 : 64, std::numeric_limits<float>::quiet_NaN());
        cache.append(isa, 0, 40);
        const auto q = random_values(64, 1);
        Partials out(1, 64);
        run_chunk(isa, cache, 0, 40, q.data(), {{0, 40}}, 1, out);
        Partials total(1, 64);
        total.m[0] = -kInfinity;
        isa.merge(1, 64, out.view(), total.view());
        float result[64];
        isa.finish(1, 64, total.view(), result, 64);
        for (float r : result) EXPECT_TRUE(std::isnan(r)) << isa.name << short_name(type) << all;
      }
    }
  }
}

// Logits far apart: p underflows to zero, sums stay right.
TEST(AttentionChunk, WideLogits) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType type : kAllTypes) {
      PagedCache cache({type, type, 64, 16}, 256, 11, isa);
      ChunkCall call;
      call.scale = 20.0f;
      check_rows(isa, cache, 0, 256, 3, {{0, 256}, {3, 100}}, call);
      if (HasFatalFailure()) return;
    }
  }
}

// int4 values: weights of 8 bits, each of the small ones below half a step of the large one's, keep
// their sum.
TEST(Attention, ManySmallWeightsBesideALargeOne) {
  const KvLayout layout{DType::f32, DType::int4, 64, 16};
  for (const AttentionIsa& isa : attention_isas()) {
    PagedCache cache(layout, 256, 1, isa);
    std::fill(cache.k.begin(), cache.k.end(), 0.0f);
    std::fill(cache.v.begin(), cache.v.end(), 1.0f);
    cache.k[0] = 7;  // slot 0, with a query of length 1: e^7 times the weight of the others
    std::fill_n(cache.v.begin(), 64, -1.0f);
    cache.append(isa, 0, 256);
    std::vector<float> q(64, 0.0f);
    q[0] = 1;
    Partials out(1, 64);
    ChunkCall call;
    call.scale = 1;
    run_chunk(isa, cache, 0, 256, q.data(), {{0, 256}}, 1, out, call);
    const double small = 255 * std::exp(-7.0);  // 0.23 in all, each a quarter of a step
    for (int d = 0; d < 64; ++d)
      ASSERT_NEAR(out.o[static_cast<size_t>(d)] / out.l[0], (small - 1) / (small + 1), 0.03)
          << isa.name;
  }
}

}  // namespace
}  // namespace pagefold::kernels
