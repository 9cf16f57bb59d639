// Matrices of made-up weights, one after the other in memory as a model's layers lie, and inputs
// that fit all of them: what the matmul kernels are timed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/cpu/memory.h"
#include "base/threads.h"
#include "kernels/kernels.h"

namespace pagefold::bench {

struct MatrixFormat {
  const char* name;      // weights and inputs: "q4_1_i8"
  const char* in_words;  // "4 bits and minimum a 32 (Q4_1), int8 inputs"
  kernels::PackKind kind;
  kernels::InputKind input;
  int group = 32;  // 64, then 32 where it does not divide the inputs; 0: a scale a row
  bool has_min = false, has_zero = false, scale_f16 = true;
};
// Every kind of weights with the inputs that it is run with.
std::span<const MatrixFormat> matrix_formats();

using MatrixDims = std::pair<int, int>;  // outputs, inputs

class MadeMatrices {
 public:
  // `copies` of the shapes in turn. Inputs of quantised kinds must be multiples of 32. k: rounds
  // and quantises the inputs.
  MadeMatrices(const MatrixFormat& format, std::span<const MatrixDims> shapes, int copies, int rows,
               const kernels::Kernels& k);
  // All products, one matrix after the other, each over all threads.
  void run(const kernels::Kernels& k, ThreadPool& pool);
  double ops() const { return 2 * weights_ * rows_; }           // a multiply-add counts as two
  double bytes() const { return static_cast<double>(bytes_); }  // of the packed weights
  static size_t bytes_of(const MatrixFormat& format, std::span<const MatrixDims> shapes);

 private:
  struct FreeBytes {
    void operator()(std::byte* p) const { std::free(p); }
  };
  using Bytes = std::unique_ptr<std::byte, FreeBytes>;
  static Bytes allocate(size_t n);
  kernels::QuantizedRows quantized() {
    return {reinterpret_cast<int8_t*>(q_.get()), scale_.data(), sums_.data()};
  }
  void make_inputs(int widest, const kernels::Kernels& k);

  std::vector<kernels::PackedMatrix> matrices_;
  kernels::InputKind input_;
  int rows_;
  double weights_ = 0;
  size_t bytes_ = 0;
  cpu::LastingMemory memory_;  // of the weights, as the engine keeps them
  Bytes q_, y_;
  std::vector<float> x_, scale_;
  std::vector<uint16_t> x16_;
  std::vector<int32_t> sums_;
};

}  // namespace pagefold::bench
