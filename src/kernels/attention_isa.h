// The attention functions of each instruction set; the table (kernels.h) is filled from them.
#pragma once

#include "kernels/paged.h"

namespace pagefold::kernels {

#define PAGEFOLD_ATTENTION_FUNCTIONS                                                            \
  void kv_append(const KvLayout& layout, const KvAppendArgs& args);                             \
  void attention_prepare_q(const KvLayout& layout, const float* q, int64_t ldq, int n_queries,  \
                           float scale, void* out);                                             \
  void attention_chunk(const KvLayout& layout, const AttentionChunkArgs& args);                 \
  void attention_merge(int n_queries, int head_dim, const AttentionPartial& from,               \
                       const AttentionPartial& into);                                           \
  void attention_finish(int n_queries, int head_dim, const AttentionPartial& total, float* out, \
                        int64_t ldo);

namespace scalar {
PAGEFOLD_ATTENTION_FUNCTIONS
}
namespace avx2 {
PAGEFOLD_ATTENTION_FUNCTIONS
}
namespace avx512 {
PAGEFOLD_ATTENTION_FUNCTIONS
}

#undef PAGEFOLD_ATTENTION_FUNCTIONS

}  // namespace pagefold::kernels
