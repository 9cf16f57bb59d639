// Runs the calibration text through one layer after the other on a backend, on the exact path
// (float32, keys and values too). Only one layer's weights are there at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "quantize/layer.h"

namespace pagefold {

// The residual stream of a text that is cut into windows, each from position 0.
struct ResidualStream {
  std::vector<int64_t> windows;  // tokens of each
  int64_t hidden = 0;
  std::vector<float> x;  // [sum of windows][hidden]
};

// Inputs of the linears of a point: [rows][width].
using InputTap = std::function<void(InputPoint, int64_t rows, int64_t width, const float* x)>;

class LayerRunner {
 public:
  LayerRunner(const ModelConfig& config, std::string isa, int threads)
      : config_(config), isa_(std::move(isa)), threads_(threads) {}

  // x becomes the residual stream behind the layer. tap may be empty.
  Status run(int index, HostLayer& layer, ResidualStream& activations, const InputTap& tap) const;

 private:
  const ModelConfig& config_;
  std::string isa_;
  int threads_;
};

}  // namespace pagefold
