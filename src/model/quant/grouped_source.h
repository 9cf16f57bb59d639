// What the sources of all formats share. Private to src/model/quant.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "formats/quant/plain_values.h"
#include "model/quant/linear_source.h"

namespace pagefold {

// A layer being put together.
struct LayerTensors {
  const WeightScheme& scheme;
  std::string_view where;
  const std::string& module;
  int64_t n_out, n_in;
  const FindTensor& find;

  std::string name(std::string_view part) const { return fmt::format("{}.{}", module, part); }
  const TensorInfo* optional(std::string_view part) const { return find(name(part)); }
  Result<const TensorInfo*> required(std::string_view part) const;
};

using Shape = std::vector<int64_t>;
// Errors that name the file, the tensor and both sides.
Status expect_shape(const TensorInfo& t, const Shape& shape);
Status expect_type(const TensorInfo& t, std::initializer_list<TensorType> types);
// A float tensor (F32, F16, BF16) of finite numbers up to kMostScale. Returns what they may be
// stored as.
Result<ScaleFacts> check_scales(const TensorInfo& t);
// Numbers that are read for form's sake (input_scale): finite and above 0.
Status check_positive(const TensorInfo& t);
Status tensor_error(const TensorInfo& t, const Status& what);

// Inputs a scale as the backend wants them: `group` itself (-1: the whole row), or where it is
// neither 16 nor a multiple of 32, or does not divide n_in, the largest such divisor; a file's
// scale then counts for several. Error: there is none.
Result<int> packed_group(const LayerTensors& l, int64_t group);

// Integers with group scales; row_f32 follows from row_quant.
class GroupedSource : public LinearSource {
 public:
  GroupedSource(int64_t n_out, int64_t n_in) : n_out_(n_out), n_in_(n_in) {}
  int64_t n_out() const override { return n_out_; }
  int64_t n_in() const override { return n_in_; }
  DType stored_dtype() const override { return DType::f32; }
  const QuantSource* quant() const override { return &quant_; }
  void row_f32(int64_t row, float* out) const override;

 protected:
  size_t groups() const { return static_cast<size_t>(n_in_ / quant_.group); }
  int64_t n_out_, n_in_;
  QuantSource quant_;
};

// Rows of a matrix that is stored by columns, unpacked `width` rows at a time. Every thread that
// reads keeps one panel; they go with the source.
class PanelCache {
 public:
  PanelCache(int64_t n_out, int64_t n_in, int64_t width)
      : n_out_(n_out), n_in_(n_in), width_(width) {}
  // fill(first, n, q): unpacks rows [first, first + n) into q[n][n_in].
  template <class Fill>
  const int8_t* row(int64_t row, const Fill& fill) {
    Panel& p = mine();
    const int64_t first = row / width_ * width_;
    if (p.first != first) {
      const int64_t n = std::min(width_, n_out_ - first);
      p.q.resize(static_cast<size_t>(width_ * n_in_));
      fill(first, n, p.q.data());
      p.first = first;
    }
    return p.q.data() + (row - first) * n_in_;
  }

 private:
  struct Panel {
    int64_t first = -1;
    std::vector<int8_t> q;
  };
  Panel& mine() {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Panel>& p = panels_[std::this_thread::get_id()];
    if (!p) p = std::make_unique<Panel>();
    return *p;
  }
  int64_t n_out_, n_in_, width_;
  std::mutex mutex_;
  std::map<std::thread::id, std::unique_ptr<Panel>> panels_;
};

// One maker a layout.
using LinearResult = Result<std::unique_ptr<LinearSource>>;
LinearResult make_awq_source(const LayerTensors& layer);
LinearResult make_gptq_source(const LayerTensors& layer);
LinearResult make_ct_packed_source(const LayerTensors& layer);
LinearResult make_scaled_source(const LayerTensors& layer);  // int8 and fp8
LinearResult make_bnb4_source(const LayerTensors& layer);
LinearResult make_bnb8_source(const LayerTensors& layer);
LinearResult make_quantising_source(const LayerTensors& layer);  // to_fp8 and to_nf4

}  // namespace pagefold
