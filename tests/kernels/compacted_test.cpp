// Attention over compacted slots against double precision, within the bound that holds for any
// cache: round after round, every type meets it before a compaction (masked to what stays) and
// after it, and the stored values are the same bits. How 8-bit probabilities round may depend on
// which slots share a strip; that they stay within this bound does not.
#include "kernels/attention_reference.h"
#include "kernels/kernels.h"
#include "tests_isa.h"

namespace pagefold::kernels {
namespace {

constexpr int kSlots = 250, kGroup = 3;

class Compacted : public ::testing::TestWithParam<const Kernels*> {
 protected:
  AttentionIsa isa() const {
    for (const AttentionIsa& i : attention_isas())
      if (GetParam()->name == std::string_view(i.name)) return i;
    ADD_FAILURE() << "no attention for " << GetParam()->name;
    return attention_isas()[0];
  }
  void expect_exact(PagedCache& cache, const uint32_t* live, uint32_t seed) const {
    const int dim = cache.layout.head_dim, n = cache.slots;
    const auto q = random_values(static_cast<size_t>(kGroup * dim), seed, 3.0f);
    const RowRange all{0, static_cast<int16_t>(n)};
    ChunkCall call;
    call.live = live;
    Partials out(kGroup, dim);
    run_chunk(isa(), cache, 0, n, q.data(), {all}, kGroup, out, call);
    for (int i = 0; i < kGroup; ++i) {
      const Reference ref = reference_attention(cache, 0, n, q.data() + i * dim, all, call);
      const auto at = static_cast<size_t>(i);
      expect_close(cache.layout, ref, out.m[at], out.l[at], out.o.data() + i * dim);
    }
  }
  // The kept slots go to the front: in their order, or from behind the new end into the holes.
  void compact(PagedCache& cache, const std::vector<int>& kept, bool order) const {
    const auto end = static_cast<int>(kept.size());
    const std::vector<float> k = cache.stored_k, v = cache.stored_v;
    std::vector<int> source(kept.size());
    auto behind = std::lower_bound(kept.begin(), kept.end(), end);
    for (int to = 0; to < end; ++to) {
      int from = to;
      if (order)
        from = kept[static_cast<size_t>(to)];
      else if (!std::binary_search(kept.begin(), kept.end(), to))
        from = *behind++;
      source[static_cast<size_t>(to)] = from;
      if (from == to) continue;
      LaneMoves m;
      m.from = cache.strip(from);
      m.to = const_cast<std::byte*>(cache.strip(to));
      m.n = 1;
      m.from_lane[0] = static_cast<uint8_t>(from % 16);
      m.to_lane[0] = static_cast<uint8_t>(to % 16);
      GetParam()->move_lanes(cache.layout, m);
    }
    cache.slots = end;
    cache.read_back();
    const auto dim = static_cast<size_t>(cache.layout.head_dim);
    for (size_t s = 0; s < source.size(); ++s) {
      const size_t from = static_cast<size_t>(source[s]) * dim;
      ASSERT_TRUE(same_bits(cache.stored_k.data() + s * dim, k.data() + from, dim)) << "slot " << s;
      ASSERT_TRUE(same_bits(cache.stored_v.data() + s * dim, v.data() + from, dim)) << "slot " << s;
    }
  }
  void refill(PagedCache& cache, uint32_t seed) const {
    const int first = cache.slots, dim = cache.layout.head_dim;
    const auto n = static_cast<size_t>((kSlots - first) * dim);
    const auto k = random_values(n, seed), v = random_values(n, seed + 1);
    std::copy(k.begin(), k.end(), cache.k.begin() + first * dim);
    std::copy(v.begin(), v.end(), cache.v.begin() + first * dim);
    cache.append(isa(), first, kSlots - first);
    cache.slots = kSlots;
    cache.read_back();
  }
};

TEST_P(Compacted, TwentyRoundsMeetTheBoundOfDoublePrecision) {
  std::vector<KvLayout> layouts;
  for (const DType type : kAllTypes) {
    for (const KvLayout& l : with_groups({type, type, 64, 16})) layouts.push_back(l);
  }
  layouts.push_back({DType::int8, DType::int4, 80, 16});
  layouts.push_back({DType::f32, DType::int8, 40, 32});
  std::mt19937 rng(3);
  for (const KvLayout& layout : layouts) {
    for (const bool order : {true, false}) {
      SCOPED_TRACE(describe(layout) + (order ? " order" : " fill"));
      PagedCache cache(layout, kSlots, 21, isa());
      cache.read_back();
      for (uint32_t round = 0; round < 20; ++round) {
        const unsigned share = round % 3 == 0 ? 10 : round % 3 == 1 ? 75 : 95;
        uint32_t live[kChunkSlots / 32] = {};
        std::vector<int> kept;
        for (int s = 0; s < kSlots; ++s) {
          if (s + 1 < kSlots && rng() % 100 < share) continue;
          kept.push_back(s);
          live[s / 32] |= 1u << (s % 32);
        }
        expect_exact(cache, live, round);
        compact(cache, kept, order);
        expect_exact(cache, nullptr, round);
        if (HasFatalFailure()) return;
        refill(cache, 100 + 2 * round);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Compacted, ::testing::ValuesIn(test::all_kernels()), test::isa_name);

}  // namespace
}  // namespace pagefold::kernels
