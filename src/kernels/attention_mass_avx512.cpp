#include "kernels/attention_isa.h"
#include "kernels/vec_avx512.h"

// Written once over the Vec of the header above.
#include "kernels/attention_rows.h"

namespace pagefold::kernels::avx512 {

void attention_mass(const float* scores, const float* lse, int queries, int slots, float* mass) {
  add_mass(scores, lse, queries, slots, mass);
}

}  // namespace pagefold::kernels::avx512
