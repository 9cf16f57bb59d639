// Paged attention on one (layer, KV head): the layout of a block and the arguments of the kernels.
//
// A block holds block_size slots (a multiple of 16) as strips of 16 slots; a strip is the K data,
// the V data, then the scales (behind the data, so that this stays aligned). One 512-bit register
// holds 16 keys, or 16 dimensions of values:
//   K float32/float16  [head_dim][16]
//     bfloat16         [head_dim / 2][16][2]   pairs of dimensions
//     fp8              [head_dim / 4][4][2][4][2]  dim 4j + 2p + b of slot 4c + i at
//     [j][c][p][i][b] int8             [head_dim / 4][16][4]   q + 128, unsigned int4 [head_dim /
//     8][16][4]   byte i of a lane: dims 8j + i (low nibble) and
//                                              8j + 4 + i (high)
//   V float32/float16  [16][head_dim]
//     bfloat16         [8][head_dim][2]        pairs of slots
//     fp8              [4][head_dim / 4][2][4][2]  slot 4j + 2p + b, dim 4c + i at [j][c][p][i][b]
//     int8             [4][head_dim][4]        quads of slots, signed
//     int4             [2][head_dim][4]        byte i: slots 8j + i (low nibble) and 8j + 4 + i
//   scales, float16:   K scale[groups][16], K zero[groups][16] (int4), V scale, V zero likewise
// groups = 1, or ceil(head_dim / group). Integer values: x = scale * q, q in [-127, 127], scale =
// max|x| / 127; x = scale * (q - zero), q in 0..15, where scale * 15 spans the values and 0, and
// zero need not be whole. Both are rounded to float16 first, q by them. A group that holds a NaN or
// an infinity has scale NaN, and reads as NaN. fp8: saturating, infinity too; NaN stays NaN; the
// layer's k_scale and v_scale (x = scale * code) are the caller's: append divides by them, whoever
// reads folds them into q, and into the output. head_dim is a multiple of 8, at most 512. Queries
// of the `group` query heads that share the KV head are computed together, so K and V are read once
// for all of them.
//
// One numeric definition, the same for decode and prefill:
//   s = q . k (float32, over d in ascending order; q scaled first, then rounded to bfloat16 for
//       bfloat16 K) + log_bias;
//   per chunk of 256 slots aligned to slot 0: m = max s, p = exp(s - m) (rounded to bfloat16 for
//       bfloat16 V), l = sum p (of the rounded values), o = sum p v;
//   slots outside [lo, hi) of a row, and dead ones, count as p = 0 and v = 0 exactly: what lies
//       there, NaN included, does not matter, so unwritten slots need not be cleared;
//   chunks are merged by attention_merge, in an order that depends on the slots alone.
// Integer K: q of a (row, head) becomes integers, n = round(q / u), once for all chunks; u = max|q|
//   / 16256 (15 bits) for int8, max|q| / 127 (8 bits) for int4, and all n = 0 where u is no normal
//   number. Over the groups g in ascending order
//   s = u sum_g scale_g (sum_d n_d q_d - zero_g sum_d n_d), sums of integers exact.
// Integer V: p and the scales of the slots are multiplied, and rounded by chunk and group:
//   w = p scale, u = max w / 32767 (int8) or / 254 (int4) over the visible slots, all n = 0 where u
//   is no normal number; o = u (sum n q - sum n zero), sums of integers exact. l = sum p, not
//   rounded. int8: n = round(w / u). int4: what a weight loses goes on to the next one, n = round(w
//   / u + c), c = w / u + c - n, over the visible slots 16 apart, so that many small weights beside
//   a large one keep their sum (error diffusion).
// Of 15 bits the steps are a hundredth of those of the stored values or less. Of 8 bits, where only
// four are stored, they add less than a hundredth to the variance of a logit (keys and queries are
// rotated, so that no dimension stands out) and at most a sixteenth to that of the output. So what
// is lost is lost in the cache, and one or two products of 8 bits (or one of 16) do the work.
// A (row, head) gets the same bits whatever the other rows of the call, the block ids and the
// slots that it does not see.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype_bits.h"

// Included by files of one instruction set: a shared copy compiled with wider instructions could be
// picked for the whole program, so nothing here may be emitted out of line.
#define PF_KERNEL_INLINE __attribute__((always_inline))

namespace pagefold::kernels {

constexpr int kStripSlots = 16;
constexpr int kChunkSlots = 256;

struct KvLayout {
  DType k_dtype = DType::bf16;
  DType v_dtype = DType::bf16;
  int head_dim = 0;
  int block_size = 16;
  int group = 0;  // elements that share a scale in int8 and int4; 0: the whole head

  PF_KERNEL_INLINE int groups() const { return group == 0 ? 1 : (head_dim + group - 1) / group; }
  // Where the groups end: the last may be short.
  PF_KERNEL_INLINE int group_begin(int g) const { return g * group; }
  PF_KERNEL_INLINE int group_end(int g) const {
    return group == 0 || (g + 1) * group > head_dim ? head_dim : (g + 1) * group;
  }
  // Integer keys: what the largest |q| becomes.
  PF_KERNEL_INLINE float query_steps() const { return k_dtype == DType::int4 ? 127.0f : 16256.0f; }
  PF_KERNEL_INLINE size_t k_strip_bytes() const {
    return kv_row_bytes(k_dtype, static_cast<size_t>(head_dim), static_cast<size_t>(group)) *
           kStripSlots;
  }
  PF_KERNEL_INLINE size_t v_strip_bytes() const {
    return kv_row_bytes(v_dtype, static_cast<size_t>(head_dim), static_cast<size_t>(group)) *
           kStripSlots;
  }
  // From the start of a strip. Zero points follow the scales.
  PF_KERNEL_INLINE size_t v_at() const { return data_bytes(k_dtype); }
  PF_KERNEL_INLINE size_t k_scales_at() const { return data_bytes(k_dtype) + data_bytes(v_dtype); }
  PF_KERNEL_INLINE size_t v_scales_at() const { return k_strip_bytes() + data_bytes(v_dtype); }
  PF_KERNEL_INLINE size_t zeros_after_scales() const {
    return static_cast<size_t>(groups()) * kStripSlots * 2;
  }
  PF_KERNEL_INLINE size_t data_bytes(DType type) const {
    return static_cast<size_t>(head_dim) * kStripSlots * dtype_bits(type) / 8;
  }
  PF_KERNEL_INLINE size_t strip_bytes() const { return k_strip_bytes() + v_strip_bytes(); }
  PF_KERNEL_INLINE size_t block_bytes() const {
    return strip_bytes() * static_cast<size_t>(block_size / kStripSlots);
  }
};

// A block id times block_bytes() from `base` is the block's first byte. Slots of one strip share
// bytes: one call at a time may write to a strip.
struct KvAppendArgs {
  std::byte* base = nullptr;
  const uint32_t* blocks = nullptr;  // the table
  int64_t first_slot = 0;            // row r goes to slot first_slot + r
  int rows = 0;
  const float* k = nullptr;  // [rows][ldk], rotated
  const float* v = nullptr;  // [rows][ldv]
  int64_t ldk = 0, ldv = 0;
  float k_scale = 1, v_scale = 1;  // fp8 only: what is stored is x / scale
  uint64_t* saturated = nullptr;   // += elements that fp8 cut to its range; null: not wanted
};

// Running softmax of n queries: m = max (-inf: nothing yet, l and o may then hold anything where
// attention_merge adds to them), l = sum, o = unnormalised output.
struct AttentionPartial {
  float* m = nullptr;  // [n]
  float* l = nullptr;  // [n]
  float* o = nullptr;  // [n][head_dim]
};

// One chunk for `rows` query rows of `group` heads each. Query index = row * group + head.
struct AttentionChunkArgs {
  const std::byte* base = nullptr;
  const uint32_t* blocks =
      nullptr;              // the block ids of this chunk's slots, ceil(slots / block_size)
  int slots = 0;            // slots of the chunk that exist, 1..256
  const void* q = nullptr;  // from attention_prepare_q: [rows * group] queries
  int rows = 0;
  int group = 1;
  const int16_t* lo = nullptr;  // [rows] first visible slot of the chunk for the row
  const int16_t* hi =
      nullptr;  // [rows] one past the last visible slot; hi <= lo: the row sees nothing here
  const float* log_bias = nullptr;  // [256] added to the logits of a slot, or null
  const uint32_t* live =
      nullptr;  // [8] bit mask of live slots (marked, not compacted, eviction), or null = all
  AttentionPartial out;  // written, not merged. A query that sees nothing: m = -inf, l = 0, o = 0
  float* scores = nullptr;   // [rows * group][256] logits (-inf where not visible), or null
  float* weights = nullptr;  // [rows * group][256] p as summed, before it is rounded for V (0 where
                             // not visible), for attention_mass; null: not wanted. Rows of queries
                             // that see nothing are left as they are.
  const uint32_t* next_blocks = nullptr;  // prefetch hint: ids that the caller reads next
  int next_count = 0;
};

// Bytes of n prepared queries (64-byte aligned storage). Their form is the instruction set's own.
size_t prepared_query_bytes(const KvLayout& layout, int n_queries);

}  // namespace pagefold::kernels
