#include "quantize/conversion.h"

#include <cmath>

#include "quantize/tensor_output.h"

namespace pagefold {
namespace {

size_t expected_tensors(const SourceModel& source, const WeightMethod& method) {
  const auto linears = static_cast<size_t>(7 * source.config().shape.n_layers);
  return source.n_tensors() + linears * static_cast<size_t>(method.tensors_per_linear() - 1);
}

// Sums the inputs of all linears of a layer.
class InputSums {
 public:
  explicit InputSums(const LinearAlgebra& math) : math_(math) {}

  void add(InputPoint point, int64_t rows, int64_t width, const float* x) {
    LinearInputs& in = inputs_[static_cast<size_t>(point)];
    if (in.width == 0) {
      in.width = width;
      in.products.assign(static_cast<size_t>(width * width), 0.0f);
      in.magnitude.assign(static_cast<size_t>(width), 0.0);
    }
    in.rows += rows;
    math_.add_transposed_product(width, width, rows, x, width, x, width, in.products.data(), width,
                                 true);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i)
        in.magnitude[static_cast<size_t>(i)] += std::abs(double{x[r * width + i]});
    }
  }
  const LayerInputs& finish() {
    for (LinearInputs& in : inputs_) mirror(in.products, in.width);
    return inputs_;
  }

 private:
  const LinearAlgebra& math_;
  LayerInputs inputs_;
};

}  // namespace

Conversion::Conversion(const QuantizeOptions& options, const SourceModel& source,
                       WeightMethod& method, DType dtype, const std::filesystem::path& folder,
                       ThreadPool& pool)
    : options_(options),
      source_(source),
      method_(method),
      dtype_(dtype),
      writer_(folder, options.max_shard_bytes, expected_tensors(source, method)),
      math_(options.isa, pool),
      runner_(source.config(), options.isa, pool.size()) {}

Status Conversion::copy(const SourceTensor& t) {
  PF_TRY(copy_tensor(source_, t, dtype_, writer_));
  source_.release(t);
  return ok_status();
}

// Embedded tokens; rounded: as the checkpoint has them.
ResidualStream Conversion::start(const std::vector<std::vector<int32_t>>& windows,
                                 bool rounded) const {
  ResidualStream a;
  a.hidden = source_.config().shape.hidden;
  for (const auto& window : windows) {
    a.windows.push_back(static_cast<int64_t>(window.size()));
    for (const int32_t token : window) {
      const size_t at = a.x.size();
      a.x.resize(at + static_cast<size_t>(a.hidden));
      source_.read_rows(source_.embedding(), token, 1, a.x.data() + at);
    }
  }
  if (rounded) round_to(dtype_, a.x.data(), static_cast<int64_t>(a.x.size()));
  return a;
}

Status Conversion::write_layer_vectors(int index, const HostLayer& layer) {
  const LayerTensors& t = source_.layer(index);
  const auto write = [&](const SourceTensor& tensor, const std::vector<float>& values) -> Status {
    const auto n = static_cast<int64_t>(values.size());
    return writer_.add(tensor.name, tensor_type_of(dtype_), tensor.shape,
                       encode_plain(dtype_, values.data(), n));
  };
  PF_TRY(write(t.input_norm, layer.input_norm));
  PF_TRY(write(t.post_norm, layer.post_norm));
  const std::pair<const std::vector<SourceTensor>*, const std::vector<float>*> optional[] = {
      {&t.q_bias, &layer.q_bias}, {&t.k_bias, &layer.k_bias}, {&t.v_bias, &layer.v_bias},
      {&t.o_bias, &layer.o_bias}, {&t.q_norm, &layer.q_norm}, {&t.k_norm, &layer.k_norm}};
  for (const auto& [tensor, values] : optional) {
    if (!tensor->empty()) PF_TRY(write(tensor->front(), *values));
  }
  return ok_status();
}

Status Conversion::convert_layer(int index) {
  HostLayer layer = read_layer(source_, index);
  if (!reference_.windows.empty()) PF_TRY(runner_.run(index, layer, reference_, {}));
  InputSums sums(math_);
  if (method_.needs_inputs()) {
    ResidualStream inputs = calibration_;  // the stream itself goes on through the quantised layer
    PF_TRY(runner_.run(index, layer, inputs,
                       [&](InputPoint point, int64_t rows, int64_t width, const float* x) {
                         sums.add(point, rows, width, x);
                       }));
  }
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const auto write = [&](const std::string& module, std::vector<OutTensor> tensors) -> Status {
    for (const OutTensor& t : tensors) {
      PF_TRY(
          writer_.add(fmt::format("{}{}.{}", prefix, module, t.suffix), t.type, t.shape, t.bytes));
      linear_bytes_ += t.bytes.size();
    }
    return ok_status();
  };
  PF_TRY(method_.quantize(layer, sums.finish(), math_, write));
  round_vectors(layer, dtype_);
  PF_TRY(write_layer_vectors(index, layer));
  const bool last = index + 1 == source_.config().shape.n_layers;
  if (method_.needs_inputs() && !last) PF_TRY(runner_.run(index, layer, calibration_, {}));
  return runner_.run(index, layer, ours_, {});
}

Status Conversion::run(const CalibrationText& text) {
  if (method_.needs_inputs()) calibration_ = start(text.calibration, true);
  reference_ = start(text.held_out, false);
  ours_ = start(text.held_out, true);
  PF_TRY(copy(source_.embedding()));
  const int layers = source_.config().shape.n_layers;
  for (int i = 0; i < layers; ++i) {
    if (options_.stop && options_.stop()) return exhausted("interrupted");
    const Status done = convert_layer(i);
    if (!done.ok()) return with_context(done, fmt::format("layer {}", i));
    if (options_.progress)
      options_.progress("quantizing", static_cast<uint64_t>(i + 1), static_cast<uint64_t>(layers));
  }
  PF_TRY(copy(source_.final_norm()));
  if (source_.head()) PF_TRY(copy(*source_.head()));
  PF_TRY(writer_.finish());
  if (!reference_.windows.empty())
    kld_ = measure_kld(source_, dtype_, std::move(reference_.x), std::move(ours_.x), math_);
  return ok_status();
}

}  // namespace pagefold
