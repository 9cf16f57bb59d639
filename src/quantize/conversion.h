// The walk through a model: reads, calibrates, quantises and writes one layer after the other.
#pragma once

#include "quantize/calibration_text.h"
#include "quantize/layer_runner.h"
#include "quantize/output_folder.h"
#include "quantize/quantize.h"
#include "quantize/safetensors_writer.h"
#include "quantize/weight_method.h"

namespace pagefold {

class Conversion {
 public:
  Conversion(const QuantizeOptions& options, const SourceModel& source, WeightMethod& method,
             DType dtype, const std::filesystem::path& folder, ThreadPool& pool);

  Status run(const CalibrationText& text);
  // Valid after run().
  const SafetensorsWriter& writer() const { return writer_; }
  uint64_t linear_bytes() const { return linear_bytes_; }
  const std::optional<KldReport>& kld() const { return kld_; }

 private:
  ResidualStream start(const std::vector<std::vector<int32_t>>& windows, bool rounded) const;
  Status convert_layer(int index);
  Status write_layer_vectors(int index, const HostLayer& layer);
  Status copy(const SourceTensor& t);

  const QuantizeOptions& options_;
  const SourceModel& source_;
  WeightMethod& method_;
  DType dtype_;
  SafetensorsWriter writer_;
  LinearAlgebra math_;
  LayerRunner runner_;
  // Streams: what calibrates (through quantised layers), what is measured, on both sides.
  ResidualStream calibration_, reference_, ours_;
  uint64_t linear_bytes_ = 0;
  std::optional<KldReport> kld_;
};

}  // namespace pagefold
