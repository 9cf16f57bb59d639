// One numeric definition: what a (row, head) gets depends on its own query and its own visible
// slots alone, to the bit.
#include "kernels/attention_fixture.h"

namespace pagefold::kernels {
namespace {

// The result of one query computed alone: one row, one head, and only the slots below hi exist.
struct Alone {
  Alone(const AttentionIsa& isa, const PagedCache& cache, int first, const float* q, RowRange range,
        ChunkCall call)
      : partial(1, cache.layout.head_dim) {
    call.scores = nullptr;
    run_chunk(isa, cache, first, std::max<int>(1, range.hi), q, {range}, 1, partial, call);
  }
  Partials partial;
};

void expect_rows_equal_alone(const AttentionIsa& isa, const PagedCache& cache, int first, int slots,
                             const std::vector<RowRange>& rows, int group,
                             const ChunkCall& call = {}) {
  const int dim = cache.layout.head_dim;
  const int n = static_cast<int>(rows.size()) * group;
  const auto q = random_values(static_cast<size_t>(n * dim), 99, 2.0f);
  Partials out(n, dim);
  run_chunk(isa, cache, first, slots, q.data(), rows, group, out, call);
  for (int i = 0; i < n; ++i) {
    const RowRange range = rows[static_cast<size_t>(i / group)];
    Alone alone(isa, cache, first, q.data() + i * dim, range, call);
    ASSERT_TRUE(same_bits(&out.m[static_cast<size_t>(i)], alone.partial.m.data(), 1)) << i;
    ASSERT_TRUE(same_bits(&out.l[static_cast<size_t>(i)], alone.partial.l.data(), 1)) << i;
    ASSERT_TRUE(same_bits(out.o.data() + i * dim, alone.partial.o.data(), static_cast<size_t>(dim)))
        << "query " << i << " rows " << rows.size() << " group " << group << " slots " << slots;
    for (int d = 0; d < dim; ++d) ASSERT_FALSE(std::isnan(out.o[static_cast<size_t>(i * dim + d)]));
  }
}

std::vector<RowRange> causal(int rows, int last_hi) {
  std::vector<RowRange> out;
  for (int r = 0; r < rows; ++r)
    out.push_back({0, static_cast<int16_t>(std::clamp(last_hi - rows + 1 + r, 0, 256))});
  return out;
}

// The cache is NaN wherever nothing was appended, so a masked slot that leaked would show.
TEST(AttentionExact, EveryLayoutAndGroup) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType k : kAllTypes) {
      for (DType v : kAllTypes) {
        for (int dim : {8, 40, 64, 80, 96, 128, 256}) {
          if (!worth_testing(k, v, dim)) continue;
          for (int group : {1, 2, 3, 4, 8}) {
            const int block = group == 1 ? 16 : group == 2 ? 64 : 32;
            const KvLayout layout{k, v, dim, block, group == 2 ? 32 : 0};
            SCOPED_TRACE(std::string(isa.name) + " " + describe(layout));
            const PagedCache cache(layout, 256 + 101, 31, isa);
            expect_rows_equal_alone(isa, cache, 256, 101, causal(5, 101), group);
            if (group == 3) expect_rows_equal_alone(isa, cache, 0, 256, causal(9, 256), group);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(AttentionExact, EverySlotCountRowCountAndBlockSize) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType type : kAllTypes) {
      for (int block : {16, 32, 64}) {
        const KvLayout layout{type, type, 64, block};
        SCOPED_TRACE(std::string(isa.name) + " " + describe(layout));
        for (int slots = 1; slots <= 256; slots += (block == 32 ? 1 : 13)) {
          const PagedCache cache(layout, slots, static_cast<uint32_t>(slots), isa);
          const int rows = 1 + slots % 7;
          expect_rows_equal_alone(isa, cache, 0, slots, causal(rows, slots), 1 + slots % 4);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(AttentionExact, SixtyFourRows) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType type : kAllTypes) {
      const KvLayout layout{type, type, 64, 16};
      SCOPED_TRACE(std::string(isa.name) + " " + describe(layout));
      const PagedCache cache(layout, 256, 31, isa);
      expect_rows_equal_alone(isa, cache, 0, 256, causal(64, 256), 3);
      expect_rows_equal_alone(isa, cache, 0, 64, causal(64, 64), 3);
      expect_rows_equal_alone(isa, cache, 0, 20, causal(64, 20), 2);
      if (HasFatalFailure()) return;
    }
  }
}

// Windows, rows that see nothing, live masks with dead slots anywhere, biases.
TEST(AttentionExact, AnyRangesOfOtherRows) {
  std::mt19937 rng(12);
  for (const AttentionIsa& isa : attention_isas()) {
    for (int trial = 0; trial < 150; ++trial) {
      const DType k = kAllTypes[rng() % 7], v = kAllTypes[rng() % 7];
      const int dims[] = {8, 64, 80, 128};
      const KvLayout layout{k, v, dims[rng() % 4], 16 << (rng() % 3), rng() % 2 ? 32 : 0};
      SCOPED_TRACE(std::string(isa.name) + " " + describe(layout) + " trial " +
                   std::to_string(trial));
      const int slots = 1 + static_cast<int>(rng() % 256);
      const PagedCache cache(layout, slots, rng(), isa);
      std::vector<RowRange> rows;
      for (uint32_t r = 0, n = 1 + rng() % 20; r < n; ++r)
        rows.push_back({static_cast<int16_t>(rng() % 2 ? 0 : rng() % static_cast<uint32_t>(slots)),
                        static_cast<int16_t>(rng() % static_cast<uint32_t>(slots + 1))});
      uint32_t live[8];
      for (uint32_t& word : live) word = rng() % 3 == 0 ? rng() : rng() % 8 == 0 ? 0u : ~0u;
      const auto bias = random_values(kChunkSlots, 3);
      ChunkCall call;
      if (trial % 2) call.live = live;
      if (trial % 3 == 0) call.log_bias = bias.data();
      expect_rows_equal_alone(isa, cache, 0, slots, rows, 1 + static_cast<int>(rng() % 6), call);
      if (HasFatalFailure()) return;
    }
  }
}

// Which blocks hold the slots, and what is prefetched, changes nothing.
TEST(AttentionExact, BlockIdsAndPrefetchDoNotMatter) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType type : kAllTypes) {
      const KvLayout layout{type, type, 64, 16};
      PagedCache a(layout, 256, 1, isa), b(layout, 256, 2, isa);
      b.k = a.k;
      b.v = a.v;
      b.append(isa, 0, 256);
      const auto q = random_values(3 * 64, 5);
      Partials out_a(3, 64), out_b(3, 64);
      run_chunk(isa, a, 0, 256, q.data(), {{0, 256}}, 3, out_a);
      ChunkCall call;
      call.next_blocks = b.blocks.data();
      for (int count : {1, 5, 16}) {
        call.next_count = count;
        run_chunk(isa, b, 0, 256, q.data(), {{0, 256}}, 3, out_b, call);
        EXPECT_TRUE(same_bits(out_a.o.data(), out_b.o.data(), 3 * 64)) << isa.name;
        EXPECT_TRUE(same_bits(out_a.l.data(), out_b.l.data(), 3)) << isa.name;
      }
    }
  }
}

// Slots beyond the last one keep old numbers after a sequence shrinks: they may be anything.
TEST(AttentionExact, StaleSlotsDoNotLeak) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType type : kAllTypes) {
      const KvLayout layout{type, type, 80, 16};
      PagedCache clean(layout, 70, 1, isa), stale(layout, 70, 1, isa);
      const auto nan = std::numeric_limits<float>::quiet_NaN();
      std::fill(stale.k.begin() + 37 * 80, stale.k.end(), nan);
      std::fill(stale.v.begin() + 37 * 80, stale.v.end(), kInfinity);
      stale.append(isa, 37, 33);
      const auto q = random_values(2 * 80, 5);
      Partials a(2, 80), b(2, 80);
      run_chunk(isa, clean, 0, 37, q.data(), {{0, 37}}, 2, a);
      run_chunk(isa, stale, 0, 70, q.data(), {{0, 37}}, 2, b);
      EXPECT_TRUE(same_bits(a.o.data(), b.o.data(), 2 * 80)) << isa.name;
      EXPECT_TRUE(same_bits(a.m.data(), b.m.data(), 2)) << isa.name;
    }
  }
}

}  // namespace
}  // namespace pagefold::kernels
