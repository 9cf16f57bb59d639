#include "kernels/attention_isa.h"
#include "kernels/vec_avx2.h"

// Written over the Vec of the header above.
#include "kernels/fp8_avx2.h"
// and that over both.
#include "kernels/kv_append_rows.h"

namespace pagefold::kernels::avx2 {

void kv_append(const KvLayout& layout, const KvAppendArgs& args) { append_rows(layout, args); }

}  // namespace pagefold::kernels::avx2
