#include "kernels/vec_avx512.h"

// Written over the Vec of the header above.
#include "kernels/integers_avx512.h"
// and that over both.
#include "kernels/attention_integers.h"

namespace pagefold::kernels::avx512 {

void score_integers(const KvLayout& layout, const StripList& strips, const TileQueries& queries,
                    Tile& tile) {
  if (layout.k_dtype == DType::int8)
    score_integer_tile<KeysInt8>(layout, strips, queries, tile);
  else
    score_integer_tile<KeysInt4>(layout, strips, queries, tile);
}

void add_integers(const KvLayout& layout, const StripList& strips, const Tile& tile, float* o) {
  if (layout.v_dtype == DType::int8)
    integer_value_tile<ValuesInt8>(layout, strips, tile, o);
  else
    integer_value_tile<ValuesInt4>(layout, strips, tile, o);
}

}  // namespace pagefold::kernels::avx512
