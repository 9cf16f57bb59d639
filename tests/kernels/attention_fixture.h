// A paged cache of one (layer, KV head) on permuted blocks, full of NaN where nothing was appended,
// and calls of the attention kernels on it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention_isa.h"
#include "kv_strip.h"

namespace pagefold::kernels {

struct AttentionIsa {
  const char* name;
  decltype(&scalar::kv_append) kv_append;
  decltype(&scalar::attention_prepare_q) prepare_q;
  decltype(&scalar::attention_chunk) chunk;
  decltype(&scalar::attention_merge) merge;
  decltype(&scalar::attention_finish) finish;
  decltype(&scalar::attention_mass) mass;
};

#define PF_ATTENTION_ISA(isa)                                                                   \
  AttentionIsa {                                                                                \
#isa, isa::kv_append, isa::attention_prepare_q, isa::attention_chunk, isa::attention_merge, \
        isa::attention_finish, isa::attention_mass                                              \
  }

inline std::vector<AttentionIsa> attention_isas() {
  std::vector<AttentionIsa> out{PF_ATTENTION_ISA(scalar)};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c"))
    out.push_back(PF_ATTENTION_ISA(avx2));
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16"))
    out.push_back(PF_ATTENTION_ISA(avx512));
  return out;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr DType kAllTypes[] = {DType::f32,      DType::f16,  DType::bf16, DType::fp8_e4m3,
                               DType::fp8_e5m2, DType::int8, DType::int4};

inline const char* short_name(DType type) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "int8", "int4"};
  return kNames[static_cast<size_t>(type)];
}

inline std::string describe(const KvLayout& layout) {
  return std::string("K ") + short_name(layout.k_dtype) + " V " + short_name(layout.v_dtype) +
         " head_dim " + std::to_string(layout.head_dim) + " block " +
         std::to_string(layout.block_size) + " scales of " + std::to_string(layout.group);
}

// Every pair of types for two head sizes, equal types for the others.
inline bool worth_testing(DType k, DType v, int head_dim) {
  return k == v || head_dim == 40 || head_dim == 64;
}

// The layout, and the same with groups of 32 where that is another one.
inline std::vector<KvLayout> with_groups(KvLayout layout) {
  std::vector<KvLayout> out{layout};
  layout.group = 32;
  if (dtype_has_scales(layout.k_dtype) || dtype_has_scales(layout.v_dtype)) out.push_back(layout);
  return out;
}

inline std::vector<float> random_values(size_t n, uint32_t seed, float width = 1.0f) {
  std::mt19937 rng(seed);
  std::vector<float> out(n);
  for (float& v : out) {
    float sum = 0;  // close to a normal distribution of the given width
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(rng()) * 0x1p-32f - 0.5f;
    v = sum * 1.7320508f * width;
  }
  return out;
}

// 64-byte aligned floats or bytes.
template <class T>
class Aligned {
 public:
  explicit Aligned(size_t n, T fill = T{}) : storage_(n * sizeof(T) + 64), n_(n) {
    auto at = reinterpret_cast<uintptr_t>(storage_.data());
    data_ = reinterpret_cast<T*>((at + 63) / 64 * 64);
    std::fill_n(data_, n, fill);
  }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  size_t size() const { return n_; }

 private:
  std::vector<unsigned char> storage_;
  size_t n_;
  T* data_;
};

struct PagedCache {
  KvLayout layout;
  int slots;
  std::vector<float> k, v;  // what was appended, before rounding: [slots][head_dim]
  std::vector<uint32_t> blocks;
  Aligned<std::byte> bytes;
  std::vector<float> stored_k, stored_v;

  PagedCache(const KvLayout& shape, int n_slots, uint32_t seed, const AttentionIsa& isa)
      : layout(shape),
        slots(n_slots),
        k(random_values(static_cast<size_t>(n_slots * shape.head_dim), seed)),
        v(random_values(static_cast<size_t>(n_slots * shape.head_dim), seed + 1)),
        blocks(static_cast<size_t>((n_slots + shape.block_size - 1) / shape.block_size)),
        bytes((blocks.size() + 3) * shape.block_bytes(), std::byte{0xff}) {
    std::vector<uint32_t> ids(blocks.size() + 3);
    std::iota(ids.begin(), ids.end(), 0u);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
    std::copy_n(ids.begin(), blocks.size(), blocks.begin());
    append(isa, 0, n_slots);
  }

  // What the cache holds now, read by the layout. The first forms are of the time of read_back().
  float stored(bool keys, int slot, int d) const {
    return (keys ? stored_k : stored_v)[static_cast<size_t>(slot * layout.head_dim + d)];
  }
  float scale(bool keys, int slot, int d) const {
    return StripMap{layout}.scale(strip(slot), keys, d, slot % 16);
  }
  void read_back() {
    for (bool keys : {true, false}) {
      std::vector<float>& to = keys ? stored_k : stored_v;
      to.clear();
      for (int s = 0; s < slots; ++s)
        for (int d = 0; d < layout.head_dim; ++d)
          to.push_back(StripMap{layout}.value(strip(s), keys, d, s % 16));
    }
  }
  const std::byte* strip(int slot) const {
    return bytes.data() +
           blocks[static_cast<size_t>(slot / layout.block_size)] * layout.block_bytes() +
           static_cast<size_t>(slot % layout.block_size / 16) * layout.strip_bytes();
  }

  void append(const AttentionIsa& isa, int first, int rows) {
    KvAppendArgs args;
    args.base = bytes.data();
    args.blocks = blocks.data();
    args.first_slot = first;
    args.rows = rows;
    args.ldk = args.ldv = layout.head_dim;
    args.k = k.data() + int64_t{first} * layout.head_dim;
    args.v = v.data() + int64_t{first} * layout.head_dim;
    isa.kv_append(layout, args);
  }
};

struct Partials {
  explicit Partials(int n, int head_dim)
      : m(static_cast<size_t>(n), 123.0f),
        l(static_cast<size_t>(n), -5.0f),
        o(static_cast<size_t>(n * head_dim), std::numeric_limits<float>::quiet_NaN()) {}
  AttentionPartial view() { return {m.data(), l.data(), o.data()}; }
  Aligned<float> m, l, o;
};

// The visible range of one query row, in slots of the chunk.
struct RowRange {
  int16_t lo, hi;
};

struct ChunkCall {
  const uint32_t* live = nullptr;
  const float* log_bias = nullptr;
  float* scores = nullptr;
  float* weights = nullptr;
  const uint32_t* next_blocks = nullptr;
  int next_count = 0;
  float scale = 0.125f;
};

// Runs chunk `chunk` of the cache for the given rows. q: [rows * group][head_dim].
inline void run_chunk(const AttentionIsa& isa, const PagedCache& cache, int first_slot, int slots,
                      const float* q, const std::vector<RowRange>& rows, int group, Partials& out,
                      const ChunkCall& call = {}) {
  const int n = static_cast<int>(rows.size()) * group;
  Aligned<std::byte> prepared(prepared_query_bytes(cache.layout, n), std::byte{0xff});
  isa.prepare_q(cache.layout, q, cache.layout.head_dim, n, call.scale, prepared.data());
  std::vector<int16_t> lo, hi;
  for (const RowRange& r : rows) lo.push_back(r.lo), hi.push_back(r.hi);
  AttentionChunkArgs args;
  args.base = cache.bytes.data();
  args.blocks = cache.blocks.data() + first_slot / cache.layout.block_size;
  args.slots = slots;
  args.q = prepared.data();
  args.rows = static_cast<int>(rows.size());
  args.group = group;
  args.lo = lo.data();
  args.hi = hi.data();
  args.log_bias = call.log_bias;
  args.live = call.live;
  args.scores = call.scores;
  args.weights = call.weights;
  args.out = out.view();
  args.next_blocks = call.next_blocks;
  args.next_count = call.next_count;
  isa.chunk(cache.layout, args);
}

inline bool same_bits(const float* a, const float* b, size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

}  // namespace pagefold::kernels
