// A file's tensor as the backend reads it, row by row.
#pragma once

#include <atomic>
#include <optional>

#include "backend/backend.h"
#include "base/file.h"
#include "formats/quant/block_types.h"
#include "formats/tensor_file.h"

namespace pagefold {

// How rows of a block type are given to the backend; none for types that are not quantised.
std::optional<QuantSource> block_source(TensorType type);

class LinearSource : public MatrixSource {
 public:
  // After the rows were read: what was found wrong in their bytes.
  virtual Status after_read() const { return ok_status(); }
};

// A row that was found wrong, by whichever thread read it.
class BadRow {
 public:
  BadRow() = default;
  BadRow(const BadRow& other) : row_(other.get()) {}
  BadRow& operator=(const BadRow&) = delete;
  void set(int64_t row) { row_.store(row, std::memory_order_relaxed); }
  int64_t get() const { return row_.load(std::memory_order_relaxed); }  // -1: none

 private:
  std::atomic<int64_t> row_ = -1;
};

class TensorSource final : public LinearSource {
 public:
  // Refuses tensors that are no [n_out, n_in] matrix of a computable type.
  static Result<TensorSource> make(const TensorInfo& tensor, int64_t n_out, int64_t n_in);

  int64_t n_out() const override { return n_out_; }
  int64_t n_in() const override { return n_in_; }
  DType stored_dtype() const override;
  const QuantSource* quant() const override { return is_quant_ ? &quant_ : nullptr; }
  void row_f32(int64_t row, float* out) const override;
  void row_quant(int64_t row, int8_t* q, float* scale, float* min) const override;
  // A weight, or the scale of a block, that is not finite.
  Status after_read() const override;

 private:
  const std::byte* row_bytes(int64_t row) const { return tensor_->data.data() + row * row_bytes_; }
  const TensorInfo* tensor_ = nullptr;
  int64_t n_out_ = 0, n_in_ = 0, row_bytes_ = 0;
  bool is_quant_ = false;
  QuantSource quant_;
  mutable BadRow bad_;
};

// A one-dimensional tensor of n finite numbers as float32.
Result<std::vector<float>> read_vector(const TensorInfo& tensor, int64_t n);

}  // namespace pagefold
