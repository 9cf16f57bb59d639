#include "kernels/attention_isa.h"
#include "kernels/vec_avx512.h"

// Written once over the Vec of the header above.
#include "kernels/attention_tile.h"

namespace pagefold::kernels::avx512 {

void attention_chunk(const KvLayout& layout, const AttentionChunkArgs& args) {
  if (is_compact(layout)) return scalar::attention_chunk(layout, args);
  run_chunk(layout, args);
}

}  // namespace pagefold::kernels::avx512
