// Plain loops: the oracle of the vector files, and what runs where they cannot.
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/attention_isa.h"
#include "kernels/exp_poly.h"

namespace pagefold::kernels::scalar {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

uint16_t load16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

float load(DType type, const std::byte* p) {
  float v;
  switch (type) {
    case DType::f16:
      return f16_to_f32(load16(p));
    case DType::bf16:
      return bf16_to_f32(load16(p));
    case DType::f32:
      break;
  }
  std::memcpy(&v, p, 4);
  return v;
}

void store(DType type, float v, std::byte* p) {
  if (type == DType::f32) {
    std::memcpy(p, &v, 4);
    return;
  }
  const uint16_t bits = type == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
  std::memcpy(p, &bits, 2);
}

// Byte offsets inside a strip's K part and V part: paged.h.
size_t k_offset(DType type, int d, int lane) {
  const auto at =
      type == DType::bf16 ? (d / 2 * kStripSlots + lane) * 2 + d % 2 : d * kStripSlots + lane;
  return static_cast<size_t>(at) * dtype_bytes(type);
}

size_t v_offset(DType type, int head_dim, int d, int lane) {
  const auto at =
      type == DType::bf16 ? (lane / 2 * head_dim + d) * 2 + lane % 2 : lane * head_dim + d;
  return static_cast<size_t>(at) * dtype_bytes(type);
}

template <class Byte>
Byte* strip_of(const KvLayout& layout, Byte* base, const uint32_t* blocks, int64_t slot) {
  const auto in_block = static_cast<size_t>(slot % layout.block_size);
  return base + blocks[slot / layout.block_size] * layout.block_bytes() +
         in_block / kStripSlots * layout.strip_bytes();
}

float exp_scalar(float x) {
  if (x < kExpLowest) x = kExpLowest;
  if (x > kExpHighest) x = kExpHighest;
  if (x != x) return x;
  const float n = std::nearbyint(x * kLog2E);
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = kExp6;
  p = p * r + kExp5;
  p = p * r + kExp4;
  p = p * r + kExp3;
  p = p * r + kExp2;
  return std::ldexp(p * (r * r) + r + 1.0f, static_cast<int>(n));
}

struct Visible {
  int lo, hi;
  const uint32_t* live;
  bool operator()(int slot) const {
    return slot >= lo && slot < hi && (live == nullptr || (live[slot / 32] >> (slot % 32) & 1u));
  }
};

Visible visible_of(const AttentionChunkArgs& args, int row) {
  return {args.lo[row], args.hi[row] < args.slots ? args.hi[row] : args.slots, args.live};
}

// Logits of one query for the strips that hold a visible slot; -inf elsewhere. Returns their max.
float query_scores(const KvLayout& layout, const AttentionChunkArgs& args, const float* q,
                   const Visible& visible, float* s) {
  float max = kNegInf;
  for (int slot = 0; slot < kChunkSlots; ++slot) {
    s[slot] = kNegInf;
    if (!visible(slot)) continue;
    const std::byte* strip = strip_of(layout, args.base, args.blocks, slot);
    float dot = 0.0f;
    for (int d = 0; d < layout.head_dim; ++d)
      dot += q[d] * load(layout.k_dtype, strip + k_offset(layout.k_dtype, d, slot % kStripSlots));
    s[slot] = args.log_bias != nullptr ? dot + args.log_bias[slot] : dot;
    if (!(s[slot] <= max)) max = s[slot];  // a NaN must not pass for a query that sees nothing
  }
  return max;
}

void query_output(const KvLayout& layout, const AttentionChunkArgs& args, const float* s,
                  const Visible& visible, float max, float* weights, float* l, float* o) {
  if (weights != nullptr)
    for (int slot = 0; slot < kChunkSlots; ++slot) weights[slot] = 0.0f;
  const std::byte* const base = args.base + layout.k_strip_bytes();
  for (int slot = 0; slot < args.slots; ++slot) {
    if (!visible(slot)) continue;
    float p = exp_scalar(s[slot] - max);
    if (weights != nullptr) weights[slot] = p;
    if (layout.v_dtype == DType::bf16) p = bf16_to_f32(f32_to_bf16(p));
    *l += p;
    const std::byte* v = strip_of(layout, base, args.blocks, slot);
    for (int d = 0; d < layout.head_dim; ++d)
      o[d] += p * load(layout.v_dtype,
                       v + v_offset(layout.v_dtype, layout.head_dim, d, slot % kStripSlots));
  }
}

}  // namespace

void kv_append(const KvLayout& layout, const KvAppendArgs& args) {
  for (int row = 0; row < args.rows; ++row) {
    const int64_t slot = args.first_slot + row;
    const int lane = static_cast<int>(slot % kStripSlots);
    std::byte* k = strip_of(layout, args.base, args.blocks, slot);
    std::byte* v = k + layout.k_strip_bytes();
    for (int d = 0; d < layout.head_dim; ++d) {
      store(layout.k_dtype, args.k[row * args.ldk + d], k + k_offset(layout.k_dtype, d, lane));
      store(layout.v_dtype, args.v[row * args.ldv + d],
            v + v_offset(layout.v_dtype, layout.head_dim, d, lane));
    }
  }
}

void attention_prepare_q(const KvLayout& layout, const float* q, int64_t ldq, int n_queries,
                         float scale, void* out) {
  auto* to = static_cast<float*>(out);
  for (int i = 0; i < n_queries; ++i) {
    for (int d = 0; d < layout.head_dim; ++d) {
      const float v = q[i * ldq + d] * scale;
      *to++ = layout.k_dtype == DType::bf16 ? bf16_to_f32(f32_to_bf16(v)) : v;
    }
  }
}

void attention_chunk(const KvLayout& layout, const AttentionChunkArgs& args) {
  const auto* q = static_cast<const float*>(args.q);
  for (int i = 0; i < args.rows * args.group; ++i) {
    const Visible visible = visible_of(args, i / args.group);
    float buffer[kChunkSlots];
    float* s = args.scores != nullptr ? args.scores + int64_t{i} * kChunkSlots : buffer;
    float* o = args.out.o + int64_t{i} * layout.head_dim;
    for (int d = 0; d < layout.head_dim; ++d) o[d] = 0.0f;
    args.out.l[i] = 0.0f;
    args.out.m[i] = query_scores(layout, args, q + int64_t{i} * layout.head_dim, visible, s);
    if (args.out.m[i] != kNegInf)
      query_output(layout, args, s, visible, args.out.m[i],
                   args.weights != nullptr ? args.weights + int64_t{i} * kChunkSlots : nullptr,
                   &args.out.l[i], o);
  }
}

void attention_merge(int n_queries, int head_dim, const AttentionPartial& from,
                     const AttentionPartial& into) {
  for (int i = 0; i < n_queries; ++i) {
    if (from.m[i] == kNegInf) continue;
    const float m = !(from.m[i] <= into.m[i]) ? from.m[i] : into.m[i];  // NaN wins
    // 0 also where nothing was merged yet: l and o need not hold numbers then.
    const float keep = exp_scalar(into.m[i] - m);
    const float add = exp_scalar(from.m[i] - m);
    into.m[i] = m;
    into.l[i] = (keep == 0.0f ? 0.0f : into.l[i] * keep) + from.l[i] * add;
    const float* f = from.o + int64_t{i} * head_dim;
    float* o = into.o + int64_t{i} * head_dim;
    for (int d = 0; d < head_dim; ++d) o[d] = (keep == 0.0f ? 0.0f : o[d] * keep) + f[d] * add;
  }
}

void attention_finish(int n_queries, int head_dim, const AttentionPartial& total, float* out,
                      int64_t ldo) {
  for (int i = 0; i < n_queries; ++i) {
    const float* o = total.o + int64_t{i} * head_dim;
    for (int d = 0; d < head_dim; ++d)
      out[i * ldo + d] = total.m[i] == kNegInf ? 0.0f : o[d] / total.l[i];
  }
}

void attention_mass(const float* weights, const float* factor, int queries, int slots, bool squared,
                    float* mass) {
  for (int i = 0; i < queries; ++i) {
    if (factor[i] == 0.0f) continue;
    for (int slot = 0; slot < slots; ++slot) {
      const float p = weights[int64_t{i} * kChunkSlots + slot] * factor[i];
      mass[slot] += squared ? p * p : p;
    }
  }
}

void page_scores(const float* bounds, const uint32_t* blocks, int n, const float* q, int group,
                 int head_dim, float* scores) {
  for (int i = 0; i < n; ++i) {
    const float* lo = bounds + int64_t{blocks[i]} * 2 * head_dim;
    const float* hi = lo + head_dim;
    scores[i] = kNegInf;
    for (int g = 0; g < group; ++g) {
      float sum = 0;
      for (int d = 0; d < head_dim; ++d) {
        const float x = q[g * head_dim + d];
        const float a = x * lo[d], b = x * hi[d];
        sum += a > b ? a : b;
      }
      if (sum > scores[i]) scores[i] = sum;
    }
  }
}

}  // namespace pagefold::kernels::scalar
