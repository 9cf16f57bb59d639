// Plain loops: the oracle of the vector files, and what runs where they cannot.
#include <cmath>
#include <limits>

#include "base/exp_poly.h"
#include "kernels/attention_isa.h"
#include "kernels/strip_scalar.h"

namespace pagefold::kernels::scalar {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

// Integer keys: the form of a prepared query, and what it takes at the front of its 4 head_dim
// bytes: the unit, the sums of the groups, then the integers.

float unit_of(float largest, float steps) { return largest / steps; }
bool usable(float unit) { return unit >= std::numeric_limits<float>::min(); }

// Of x <= 0.
float exp_scalar(float x) {
  if (x < kExpLowest) x = kExpLowest;
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

struct IntegerQuery {
  float unit;
  const int32_t* sums;  // [groups]
  const int16_t* n;     // [head_dim]
};

IntegerQuery integer_query(const KvLayout& layout, const float* prepared) {
  IntegerQuery q;
  q.unit = prepared[0];
  q.sums = reinterpret_cast<const int32_t*>(prepared + 1);
  q.n = reinterpret_cast<const int16_t*>(prepared + 1 + layout.groups());
  return q;
}

float integer_logit(const StripPart& keys, int lane, const IntegerQuery& q) {
  float total = 0.0f;
  for (int g = 0; g < keys.layout.groups(); ++g) {
    int32_t sum = 0;
    for (int d = keys.layout.group_begin(g); d < keys.layout.group_end(g); ++d)
      sum += q.n[d] * keys.code(d, lane);
    const float exact = static_cast<float>(sum);
    total +=
        keys.scale(g, lane) * (keys.type() == DType::int8
                                   ? exact
                                   : exact - keys.zero(g, lane) * static_cast<float>(q.sums[g]));
  }
  return total * q.unit;
}

// Logits of one query for the strips that hold a visible slot; -inf elsewhere. Returns their max.
float query_scores(const KvLayout& layout, const AttentionChunkArgs& args, const float* q,
                   const Visible& visible, float* s) {
  float max = kNegInf;
  for (int slot = 0; slot < kChunkSlots; ++slot) {
    s[slot] = kNegInf;
    if (!visible(slot)) continue;
    const StripPart keys = StripPart::k_of(layout, strip_of(layout, args.base, args.blocks, slot));
    const int lane = slot % kStripSlots;
    float dot = 0.0f;
    if (dtype_has_scales(layout.k_dtype))
      dot = integer_logit(keys, lane, integer_query(layout, q));
    else
      for (int d = 0; d < layout.head_dim; ++d) dot += q[d] * keys.value(d, lane);
    s[slot] = args.log_bias != nullptr ? dot + args.log_bias[slot] : dot;
    if (!(s[slot] <= max)) max = s[slot];  // a NaN must not pass for a query that sees nothing
  }
  return max;
}

// One group of integer values of a chunk.
void add_integer_values(const KvLayout& layout, const AttentionChunkArgs& args,
                        const Visible& visible, const float* p, int group, float* o) {
  float w[kChunkSlots], largest = 0.0f;
  const auto values_of = [&](int slot) {
    return StripPart::v_of(layout, strip_of(layout, args.base, args.blocks, slot));
  };
  for (int slot = 0; slot < args.slots; ++slot) {
    if (!visible(slot)) continue;
    w[slot] = p[slot] * values_of(slot).scale(group, slot % kStripSlots);
    if (!(w[slot] <= largest)) largest = w[slot];  // a NaN stays
    if (largest != largest) break;
  }
  const bool diffused = layout.v_dtype == DType::int4;
  const float most_steps = diffused ? 254.0f : 32767.0f;
  const float unit = unit_of(largest, most_steps);
  if (unit == unit && !usable(unit)) return;
  int32_t sums[512] = {};
  float zeros = 0.0f, carry[kStripSlots] = {};
  const float steps = most_steps / largest;
  const int begin = layout.group_begin(group), end = layout.group_end(group);
  for (int slot = 0; slot < args.slots && unit == unit; ++slot) {
    if (!visible(slot)) continue;
    const StripPart values = values_of(slot);
    float& lost = carry[slot % kStripSlots];
    const float x = w[slot] * steps + lost;
    const int n = static_cast<int>(std::nearbyint(x));
    if (diffused) lost = x - static_cast<float>(n);
    zeros += static_cast<float>(n) * values.zero(group, slot % kStripSlots);
    for (int d = begin; d < end; ++d) sums[d - begin] += n * values.code(d, slot % kStripSlots);
  }
  for (int d = begin; d < end; ++d) o[d] = unit * (static_cast<float>(sums[d - begin]) - zeros);
}

void query_output(const KvLayout& layout, const AttentionChunkArgs& args, const float* s,
                  const Visible& visible, float max, float* weights, float* l, float* o) {
  if (weights != nullptr)
    for (int slot = 0; slot < kChunkSlots; ++slot) weights[slot] = 0.0f;
  const bool integers = dtype_has_scales(layout.v_dtype);
  float kept[kChunkSlots];
  for (int slot = 0; slot < args.slots; ++slot) {
    if (!visible(slot)) continue;
    float p = exp_scalar(s[slot] - max);
    if (weights != nullptr) weights[slot] = p;
    if (layout.v_dtype == DType::bf16) p = bf16_to_f32(f32_to_bf16(p));
    *l += p;
    kept[slot] = p;
    if (integers) continue;
    const StripPart values =
        StripPart::v_of(layout, strip_of(layout, args.base, args.blocks, slot));
    for (int d = 0; d < layout.head_dim; ++d) o[d] += p * values.value(d, slot % kStripSlots);
  }
  if (integers)
    for (int g = 0; g < layout.groups(); ++g) add_integer_values(layout, args, visible, kept, g, o);
}

void prepare_integers(const KvLayout& layout, const float* q, float scale, float* out) {
  float largest = 0.0f;
  for (int d = 0; d < layout.head_dim; ++d) {
    const float x = std::fabs(q[d] * scale);
    if (!(x <= largest)) largest = x;
    if (largest != largest) break;
  }
  const float unit = unit_of(largest, layout.query_steps());
  const bool all_zero = !usable(unit) || std::isinf(unit);
  const float steps = layout.query_steps() / largest;
  auto* const sums = reinterpret_cast<int32_t*>(out + 1);
  auto* const n = reinterpret_cast<int16_t*>(out + 1 + layout.groups());
  // NaN or infinite: every logit is NaN.
  out[0] = std::isfinite(unit) ? (all_zero ? 0.0f : unit) : std::numeric_limits<float>::quiet_NaN();
  for (int g = 0; g < layout.groups(); ++g) {
    sums[g] = 0;
    for (int d = layout.group_begin(g); d < layout.group_end(g); ++d) {
      n[d] = all_zero ? int16_t{0} : static_cast<int16_t>(std::nearbyint(q[d] * scale * steps));
      sums[g] += n[d];
    }
  }
}

}  // namespace

void attention_prepare_q(const KvLayout& layout, const float* q, int64_t ldq, int n_queries,
                         float scale, void* out) {
  auto* to = static_cast<float*>(out);
  for (int i = 0; i < n_queries; ++i) {
    if (dtype_has_scales(layout.k_dtype)) {
      prepare_integers(layout, q + i * ldq, scale, to);
      to += layout.head_dim;
      continue;
    }
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
