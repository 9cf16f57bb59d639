#include "kernels/paged.h"

namespace pagefold::kernels {

size_t prepared_query_bytes(const KvLayout& layout, int n_queries) {
  // The widest form that any instruction set uses: one float a dimension. For integer keys this
  // holds two bytes a dimension, the unit, and a sum a group.
  const size_t bytes =
      sizeof(float) * static_cast<size_t>(layout.head_dim) * static_cast<size_t>(n_queries);
  return (bytes + 63) / 64 * 64;
}

}  // namespace pagefold::kernels
