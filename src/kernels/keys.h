// Operations on cached keys outside attention, a strip of 16 slots at a time (layout: paged.h). One
// set an instruction set; the caller checks that the CPU has the instructions. A slot's result does
// not depend on the other slots of its strip, nor on the strips and queries of the call.
#pragma once

#include "kernels/paged.h"

namespace pagefold::kernels {

constexpr int kMostBands = 512;

// Scores of 16 keys for the `group` query heads of a KV head, over the rotary bands f of the keys
// as stored, k_f = re + i im:
//   max over the sets of sum_f (re[f] Re(k_f) + im[f] Im(k_f))  +  sum_f norm[f] |k_f|
struct StripScoreArgs {
  const float* keys = nullptr;  // from unpack_keys
  int bands = 0;                // half the rotated dimensions, at most head_dim / 2 and kMostBands
  bool half_layout = true;      // band f is the dims (f, f + bands), else (2f, 2f + 1)
  int group = 1, sets = 1;
  const float* re = nullptr;  // [sets][set_stride], of which [group][bands] are read
  const float* im = nullptr;
  int64_t set_stride = 0;
  const float* norm = nullptr;  // [group][bands]
  float* out = nullptr;         // [group][ldo], of which 16 are written
  int64_t ldo = 0;
};

// out[q][16 s + lane] = scale * sum over d, ascending, of queries[q][d] * strips[s][d][lane].
struct StripDotArgs {
  const float* strips = nullptr;  // [n_strips][head_dim][16]
  int n_strips = 0;
  int head_dim = 0;
  const float* queries = nullptr;  // [n_queries][ldq]
  int64_t ldq = 0;
  int n_queries = 0;
  float scale = 1;
  float* out = nullptr;  // [n_queries][ldo]
  int64_t ldo = 0;
};

// The keys of a strip as rows of unit length. Not counted: zeros. So is a key that has no
// direction, being zero.
struct StripUnitArgs {
  const float* keys = nullptr;  // [head_dim][16]
  int head_dim = 0;             // a multiple of 8
  unsigned counts = 0;          // bit `lane`: that slot is a key
  float* rows = nullptr;        // [16][head_dim]
  float* sums = nullptr;        // [head_dim] += the rows, in any order
};
struct StripUnits {
  unsigned directed;  // bit `lane`: the row is not zero
  float largest;      // |element|
};

// out[i] = sum over d of rows[i][d] * with[d], in an order of the instruction set's own.
struct RowDotArgs {
  const float* rows = nullptr;  // [n][head_dim]
  int64_t n = 0;
  int head_dim = 0;             // a multiple of 8
  const float* with = nullptr;  // [head_dim]
  float* out = nullptr;         // [n]
};

// Rows of at most 127 / inverse_scale in 8 bits: codes = round(x * inverse_scale).
struct StripEncodeArgs {
  const float* rows = nullptr;  // [16][head_dim]
  int head_dim = 0;             // a multiple of 8
  float inverse_scale = 1;
  int8_t* codes = nullptr;  // [head_dim / 4][16][4], 64-byte aligned
  int32_t* sums = nullptr;  // [16] of the codes
};

// Which slots may be like a row: bit `lane` of out[r][s] says that the product of the codes of slot
// rows[r] and of slot 16 (first_strip + s) + lane is above the limit. Exact integers.
struct StripNearArgs {
  const int8_t* codes = nullptr;  // -127..127, [strips][head_dim / 4][16][4], 64-byte aligned
  const int32_t* sums = nullptr;  // [slots] sum of the codes of a slot
  int head_dim = 0;               // a multiple of 4
  const int32_t* rows = nullptr;
  int n_rows = 0;
  int first_strip = 0, n_strips = 0;
  int32_t limit = 0;        // within +-2^30
  uint16_t* out = nullptr;  // [n_rows][n_strips]
};

// Slots of one strip that go to slots of another (or the same) one; in order, none reads what an
// earlier one wrote.
struct LaneMoves {
  const std::byte* from = nullptr;  // strips
  std::byte* to = nullptr;
  int n = 0;  // 1..16
  uint8_t from_lane[kStripSlots] = {}, to_lane[kStripSlots] = {};
};

}  // namespace pagefold::kernels

#define PF_DECLARE_KEYS                                                                     \
  /* The keys of a strip as float32 [head_dim][16]. */                                      \
  void unpack_keys(const KvLayout& layout, const std::byte* strip, float* keys);            \
  void score_strip(const StripScoreArgs& args);                                             \
  void dot_strips(const StripDotArgs& args);                                                \
  StripUnits unit_strip(const StripUnitArgs& args);                                         \
  void dot_rows(const RowDotArgs& args);                                                    \
  void encode_strip(const StripEncodeArgs& args);                                           \
  void near_strips(const StripNearArgs& args);                                              \
  /* K and V of the slots. */                                                               \
  void move_lanes(const KvLayout& layout, const LaneMoves& moves);                          \
  /* In place: row times the orthonormal block-Hadamard matrix, its own inverse. Block: the \
   * largest power of two that divides head_dim. */                                         \
  void hadamard(float* row, int head_dim);

namespace pagefold::kernels::scalar {
PF_DECLARE_KEYS
}
namespace pagefold::kernels::avx2 {
PF_DECLARE_KEYS
}
namespace pagefold::kernels::avx512 {
PF_DECLARE_KEYS
}

#undef PF_DECLARE_KEYS
