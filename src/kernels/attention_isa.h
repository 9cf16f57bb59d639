// The attention entries of the kernel table, one set an instruction set. paged.h says what they do.
// The caller checks that the CPU has the instructions.
#pragma once

#include "kernels/paged.h"

#define PF_DECLARE_ATTENTION                                                                      \
  void kv_append(const KvLayout& layout, const KvAppendArgs& args);                               \
  void attention_prepare_q(const KvLayout& layout, const float* q, int64_t ldq, int n_queries,    \
                           float scale, void* out);                                               \
  void attention_chunk(const KvLayout& layout, const AttentionChunkArgs& args);                   \
  void attention_merge(int n_queries, int head_dim, const AttentionPartial& from,                 \
                       const AttentionPartial& into);                                             \
  void attention_finish(int n_queries, int head_dim, const AttentionPartial& total, float* out,   \
                        int64_t ldo);                                                             \
  void attention_mass(const float* weights, const float* factor, int queries, int slots,          \
                      bool squared, float* mass);                                                 \
  void page_scores(const float* bounds, const uint32_t* blocks, int n, const float* q, int group, \
                   int head_dim, float* scores);

namespace pagefold::kernels::scalar {
PF_DECLARE_ATTENTION
}
namespace pagefold::kernels::avx2 {
PF_DECLARE_ATTENTION
}
namespace pagefold::kernels::avx512 {
PF_DECLARE_ATTENTION
}

#undef PF_DECLARE_ATTENTION
