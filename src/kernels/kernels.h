// The kernel table: every hot loop of the engine, one implementation an instruction set, picked
// once at start.
//
// Rules that make answers repeatable (design section 11):
//  * A row's result does not depend on the other rows of the call, on how many there are, or on how
//  work is split
//    over threads. matmul: one accumulator an output, groups in ascending order. attention: chunks
//    of 256 slots aligned to slot 0, merged in an order that depends on the slots alone
//    (backend/cpu/part_sum.h).
//  * Implementations may differ from the scalar one by rounding only; tests bound the difference.
// Row-major matrices; ld = distance of two rows in elements. Buffers are 64-byte aligned unless
// said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/keys.h"
#include "kernels/packed.h"
#include "kernels/paged.h"

namespace pagefold::kernels {

// Inputs quantised to int8, symmetric, one scale per 32 values: x ~ q * scale, q in [-127, 127],
// scale = max|x| / 127. sums: of q over each 16 values (for the min term and zero points).
struct QuantizedRows {
  int8_t* q = nullptr;      // [rows][n]      n a multiple of 32
  float* scale = nullptr;   // [rows][n / 32]
  int32_t* sums = nullptr;  // [rows][n / 16]
};

// Which form the inputs of a matmul take.
enum class InputKind : uint8_t {
  f32,   // float; values may have been rounded to a 16-bit type before
  bf16,  // uint16_t, for PackKind::bf16 weights only (vdpbf16ps)
  i8,    // QuantizedRows, for weights that takes_int8() allows
  i8x2,  // the same with two rows a row: the quantised one, and what quantising it lost, quantised
         // in turn. About 16 bits: an error of at most 1/64,500 of the largest of 32 inputs
};

struct MatmulArgs {
  const PackedMatrix* weights = nullptr;
  InputKind input = InputKind::f32;
  const void* x = nullptr;  // f32 / bf16: [rows][ldx]
  int64_t ldx = 0;
  QuantizedRows xq;  // i8: [rows]; i8x2: [2 * rows], a row and its rest in turn
  int rows = 0;
  float* y =
      nullptr;  // [rows][ldy]; only columns of the tiles asked for are written, never past n_out
  int64_t ldy = 0;
  int tile_begin = 0, tile_end = 0;
  const float* bias = nullptr;  // [n_out] or null
  bool accumulate = false;      // y += result instead of y = result
};

struct Kernels {
  std::string_view name;  // "scalar", "avx2", "avx512"

  // --- matmul ---
  void (*matmul)(const MatmulArgs&);
  // rest: [rows][n], x - q * scale (NaN where x is not finite), or null; it may not be x.
  void (*quantize_rows)(const float* x, int64_t ldx, int rows, int n, const QuantizedRows& out,
                        float* rest);
  // y = round_to_dtype(x): bf16 writes uint16_t (input of InputKind::bf16).
  void (*to_bf16)(const float* x, int64_t n, uint16_t* y);
  // In place: x = float(bfloat16(x)) or float(float16(x)); f32 does nothing.
  void (*round_to)(DType dtype, float* x, int64_t n);

  // --- element-wise, one row (n values) a call ---
  // y = x / sqrt(mean(x^2) + eps) * gamma. y may be x. The sum is taken in a fixed order that
  // depends on n alone.
  void (*rms_norm)(const float* x, const float* gamma, float eps, int n, float* y);
  // y[i] = silu(gate[i]) * up[i]
  void (*silu_mul)(const float* gate, const float* up, int n, float* y);
  // Rotates a head in place. half layout (NeoX): pairs (i, i + rot/2); adjacent layout (original
  // Llama): (2i, 2i+1). cos, sin: [rot / 2]. Values from rot to head_dim stay.
  void (*rope)(float* head, const float* cos, const float* sin, int rot, bool half_layout);

  // --- paged attention: paged.h ---
  void (*kv_append)(const KvLayout&, const KvAppendArgs&);
  void (*attention_prepare_q)(const KvLayout&, const float* q, int64_t ldq, int n_queries,
                              float scale, void* out);
  void (*attention_chunk)(const KvLayout&, const AttentionChunkArgs&);
  void (*attention_merge)(int n_queries, int head_dim, const AttentionPartial& from,
                          const AttentionPartial& into);
  void (*attention_finish)(int n_queries, int head_dim, const AttentionPartial& total, float* out,
                           int64_t ldo);
  // mass[slot] += weights * factor[query] (squared: its square) for all queries in ascending order,
  // one addition each: what the slots of a chunk got of the queries' attention, without a second
  // exponential. weights: [queries][256] as attention_chunk left them; factor: exp(m - M) / L with
  // the chunk's m and the whole row's M and L; 0: the query adds nothing, its weights are not read.
  // mass: [slots], slots <= 256. The weights of slots up to a multiple of 16 are read.
  void (*attention_mass)(const float* weights, const float* factor, int queries, int slots,
                         bool squared, float* mass);
  // Quest: scores[i] = max over the `group` queries of sum_c max(q_c lo_c, q_c hi_c), an upper
  // bound of q . k for every key of block blocks[i]. bounds: [block id][lo, hi][head_dim]; q:
  // [group][head_dim].
  void (*page_scores)(const float* bounds, const uint32_t* blocks, int n, const float* q, int group,
                      int head_dim, float* scores);

  // --- cached keys outside attention: keys.h ---
  // The keys of a strip as float32 [head_dim][16].
  void (*unpack_keys)(const KvLayout&, const std::byte* strip, float* keys);
  void (*score_strip)(const StripScoreArgs&);
  void (*dot_strips)(const StripDotArgs&);
  StripUnits (*unit_strip)(const StripUnitArgs&);
  void (*dot_rows)(const RowDotArgs&);
  void (*encode_strip)(const StripEncodeArgs&);
  void (*near_strips)(const StripNearArgs&);
  // K and V of the slots.
  void (*move_lanes)(const KvLayout&, const LaneMoves&);
  // In place: the row times the orthonormal block-Hadamard matrix (+-1 / sqrt(block)), which is its
  // own inverse and spreads an outlier over the block. Block: the largest power of two that divides
  // head_dim (80: 5 x 16).
  void (*hadamard)(float* row, int head_dim);
};

// The implementations this CPU can run, best last; the first is always "scalar".
const Kernels* const* available_kernels(int* count);
// "auto" = the best; an unknown or unsupported name is an error that lists what can be had.
Result<const Kernels*> select_kernels(std::string_view isa);

}  // namespace pagefold::kernels
