// Rotation angles for a step's rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"

namespace pagefold {

// Frequencies [rot / 2] (radians a position) and the factor of cos and sin.
// standard: theta^(-2i/rot); linear: / factor; llama3: long wavelengths / factor with a smooth step
// between; yarn: arXiv 2309.00071, ramp between interpolation and extrapolation.
struct RopeFrequencies {
  std::vector<double> frequency;
  double magnitude = 1.0;
};
RopeFrequencies rope_frequencies(const RopeConfig& config);

// cos and sin of all rows of a step. Rows of the first positions are kept, since decodes ask for
// them again and again.
class RopeTable {
 public:
  explicit RopeTable(RopeFrequencies frequencies);
  // Fills cos() and sin(): [positions.size()][rot / 2].
  void prepare(std::span<const int64_t> positions);
  const float* cos() const { return own_.cos.data(); }
  const float* sin() const { return own_.sin.data(); }
  // The same for second queries at other positions (RopeShape::sink_cos).
  void prepare_sinks(std::span<const int64_t> positions);
  const float* sink_cos() const { return sinks_.cos.data(); }
  const float* sink_sin() const { return sinks_.sin.data(); }

 private:
  struct Angles {
    std::vector<float> cos, sin;  // [positions][rot / 2]
  };
  void compute(int64_t position, float* cos, float* sin) const;
  void fill(std::span<const int64_t> positions, Angles& out);
  RopeFrequencies f_;
  Angles own_, sinks_;
  std::vector<float> kept_;  // [position][cos row, sin row], grows up to kKeptPositions
};

}  // namespace pagefold
