// Which kernels this CPU can run, and which one to take.
#include <cpuid.h>
#include <cstdlib>

#include <string>

#include "kernels/attention_isa.h"
#include "kernels/kernels.h"
#include "kernels/keys.h"
#include "kernels/matmul_isa.h"

namespace pagefold::kernels {
namespace {

#define PAGEFOLD_TABLE(isa)                                                                       \
  Kernels {                                                                                       \
#isa, isa::matmul, isa::quantize_rows, isa::to_bf16, isa::round_to, isa::rms_norm,            \
        isa::silu_mul, isa::rope, isa::kv_append, isa::attention_prepare_q, isa::attention_chunk, \
        isa::attention_merge, isa::attention_finish, isa::attention_mass, isa::page_scores,       \
        isa::unpack_keys, isa::score_strip, isa::dot_strips, isa::unit_strip, isa::dot_rows,      \
        isa::encode_strip, isa::near_strips, isa::move_lanes, isa::hadamard                       \
  }

constexpr Kernels kScalar = PAGEFOLD_TABLE(scalar);
constexpr Kernels kAvx2 = PAGEFOLD_TABLE(avx2);
constexpr Kernels kAvx512 = PAGEFOLD_TABLE(avx512);

// Every feature that cmake/isa.cmake switches on for the files of a level: the compiler may use any
// of them anywhere in such a file. The builtin also checks that the system saves the registers.
// clang 14's builtin does not know f16c; the registers are AVX's, which it does check.
bool cpu_has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
bool cpu_has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c() &&
         __builtin_cpu_supports("bmi2");
}
bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vbmi");
}

struct Available {
  const Kernels* list[3];
  int count = 0;
  Available() {
    __builtin_cpu_init();
    list[count++] = &kScalar;
    if (cpu_has_avx2()) list[count++] = &kAvx2;
    if (cpu_has_avx512()) list[count++] = &kAvx512;
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
