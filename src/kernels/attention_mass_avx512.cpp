#include "kernels/attention_isa.h"
#include "kernels/vec_avx512.h"

// Written once over the Vec of the header above.
#include "kernels/attention_rows.h"

namespace pagefold::kernels::avx512 {

void attention_mass(const float* weights, const float* factor, int queries, int slots, bool squared,
                    float* mass) {
  if (squared)
    add_mass<true>(weights, factor, queries, slots, mass);
  else
    add_mass<false>(weights, factor, queries, slots, mass);
}

}  // namespace pagefold::kernels::avx512
