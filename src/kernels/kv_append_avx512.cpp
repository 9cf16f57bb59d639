#include "kernels/attention_isa.h"
#include "kernels/vec_avx512.h"

// Written over the Vec of the header above.
#include "kernels/fp8_avx512.h"
// and that over both.
#include "kernels/kv_append_rows.h"

namespace pagefold::kernels::avx512 {

void kv_append(const KvLayout& layout, const KvAppendArgs& args) { append_rows(layout, args); }

}  // namespace pagefold::kernels::avx512
