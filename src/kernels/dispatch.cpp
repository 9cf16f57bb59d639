// Which kernels this CPU can run, and which one to take.
#include <cstdlib>
#include <string>

#include "kernels/attention_isa.h"
#include "kernels/kernels.h"
#include "kernels/matmul_isa.h"

namespace pagefold::kernels {
namespace {

#define PAGEFOLD_TABLE(isa)                                                                       \
  Kernels {                                                                                       \
#isa, isa::matmul, isa::quantize_rows, isa::to_bf16, isa::round_to, isa::rms_norm,            \
        isa::silu_mul, isa::rope, isa::kv_append, isa::attention_prepare_q, isa::attention_chunk, \
        isa::attention_merge, isa::attention_finish                                               \
  }

constexpr Kernels kScalar = PAGEFOLD_TABLE(scalar);

struct Available {
  const Kernels* list[3];
  int count = 0;
  Available() {
    __builtin_cpu_init();
    list[count++] = &kScalar;
  }
};

}  // namespace

const Kernels* const* available_kernels(int* count) {
  static const Available available;
  *count = available.count;
  return available.list;
}

Result<const Kernels*> select_kernels(std::string_view isa) {
  std::string_view origin = "the instruction set";
  if (isa == "auto") {
    if (const char* forced = std::getenv("PAGEFOLD_ISA"); forced != nullptr && *forced != '\0') {
      isa = forced;
      origin = "the environment variable PAGEFOLD_ISA:";
    }
  }
  int count = 0;
  const Kernels* const* list = available_kernels(&count);
  if (isa == "auto") return list[count - 1];
  std::string names = "auto";
  for (int i = 0; i < count; ++i) {
    if (list[i]->name == isa) return list[i];
    names += ", ";
    names += list[i]->name;
  }
  return bad_input("{} \"{}\" is unknown or not supported by this CPU; use one of: {}", origin, isa,
                   names);
}

}  // namespace pagefold::kernels
