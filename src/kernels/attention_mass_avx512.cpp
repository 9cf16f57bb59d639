#include "kernels/attention_isa.h"
#include "kernels/vec_avx512.h"

// Written over the Vec of the header above.
#include "kernels/integers_avx512.h"

// and that over both.
#include "kernels/attention_rows.h"

namespace pagefold::kernels::avx512 {

void attention_mass(const float* weights, const float* factor, int queries, int slots, bool squared,
                    float* mass) {
  if (squared)
    add_mass<true>(weights, factor, queries, slots, mass);
  else
    add_mass<false>(weights, factor, queries, slots, mass);
}

void page_scores(const float* bounds, const uint32_t* blocks, int n, const float* q, int group,
                 int head_dim, float* scores) {
  score_pages(bounds, blocks, n, q, group, head_dim, scores);
}

}  // namespace pagefold::kernels::avx512
