#include "kernels/vec_avx2.h"

// Written over the Vec of the header above.
#include "kernels/attention_passes.h"
#include "kernels/fp8_avx2.h"

namespace pagefold::kernels::avx2 {

void score_fp8(const KvLayout& layout, const StripList& strips, const TileQueries& queries,
               Tile& tile) {
  if (layout.k_dtype == DType::fp8_e4m3)
    score_tile<KeysFp8<&kE4m3Table>>(layout, strips, queries, tile);
  else
    score_tile<KeysFp8<&kE5m2Table>>(layout, strips, queries, tile);
}

void add_fp8(const KvLayout& layout, const StripList& strips, const Tile& tile, float* o) {
  if (layout.v_dtype == DType::fp8_e4m3)
    value_tile<Fp8Values<&kE4m3Table>::Of>(layout, strips, tile, o);
  else
    value_tile<Fp8Values<&kE5m2Table>::Of>(layout, strips, tile, o);
}

}  // namespace pagefold::kernels::avx2
