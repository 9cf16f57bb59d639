#include "kernels/attention_isa.h"
#include "kernels/vec_avx2.h"

// Written over the Vec of the header above.
#include "kernels/integers_avx2.h"

// and that over both.
#include "kernels/attention_rows.h"

namespace pagefold::kernels::avx2 {

void attention_prepare_q(const KvLayout& layout, const float* q, int64_t ldq, int n_queries,
                         float scale, void* out) {
  prepare_queries(layout, q, ldq, n_queries, scale, out);
}

void attention_merge(int n_queries, int head_dim, const AttentionPartial& from,
                     const AttentionPartial& into) {
  for (int i = 0; i < n_queries; ++i) {
    const int64_t at = static_cast<int64_t>(i) * head_dim;
    merge_query(head_dim, from.m[i], from.l[i], from.o + at, into.m + i, into.l + i, into.o + at);
  }
}

void attention_finish(int n_queries, int head_dim, const AttentionPartial& total, float* out,
                      int64_t ldo) {
  for (int i = 0; i < n_queries; ++i)
    finish_query(head_dim, total.m[i], total.l[i], total.o + static_cast<int64_t>(i) * head_dim,
                 out + i * ldo);
}

}  // namespace pagefold::kernels::avx2
