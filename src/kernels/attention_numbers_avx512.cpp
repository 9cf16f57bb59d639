#include "kernels/vec_avx512.h"

// Written over the Vec of the header above.
#include "kernels/attention_passes.h"

namespace pagefold::kernels::avx512 {

void score_numbers(const KvLayout& layout, const StripList& strips, const TileQueries& queries,
                   Tile& tile) {
  if (layout.k_dtype == DType::f32) return score_tile<KeysF32>(layout, strips, queries, tile);
  if (layout.k_dtype == DType::f16) return score_tile<KeysF16>(layout, strips, queries, tile);
  if (slow_dpbf16()) return score_tile<KeysBf16Wide>(layout, strips, queries, tile);
  score_tile<KeysBf16>(layout, strips, queries, tile);
}

void add_numbers(const KvLayout& layout, const StripList& strips, const Tile& tile, float* o) {
  if (layout.v_dtype == DType::f32) return value_tile<ValuesF32>(layout, strips, tile, o);
  if (layout.v_dtype == DType::f16) return value_tile<ValuesF16>(layout, strips, tile, o);
  if (slow_dpbf16()) return value_tile<ValuesBf16Wide>(layout, strips, tile, o);
  value_tile<ValuesBf16>(layout, strips, tile, o);
}

}  // namespace pagefold::kernels::avx512
