// One layer's weights on the host, and what calibration learns about the inputs of its linears.
#pragma once

#include <array>
#include <vector>

#include "quantize/source_model.h"

namespace pagefold {

// What linears share an input.
enum class InputPoint : uint8_t { attention, attention_out, ffn, down };
inline constexpr int kInputPoints = 4;

struct HostLayer {
  std::vector<float> input_norm, post_norm, q_norm, k_norm;  // the last two may be empty
  Matrix q, k, v, o, gate, up, down;
  std::vector<float> q_bias, k_bias, v_bias, o_bias;  // empty: none

  // The seven linears with their module names within the layer.
  struct Named {
    const char* module;
    Matrix* weight;
    InputPoint input;
  };
  std::array<Named, 7> linears() {
    return {Named{"self_attn.q_proj", &q, InputPoint::attention},
            Named{"self_attn.k_proj", &k, InputPoint::attention},
            Named{"self_attn.v_proj", &v, InputPoint::attention},
            Named{"self_attn.o_proj", &o, InputPoint::attention_out},
            Named{"mlp.gate_proj", &gate, InputPoint::ffn},
            Named{"mlp.up_proj", &up, InputPoint::ffn},
            Named{"mlp.down_proj", &down, InputPoint::down}};
  }
};
HostLayer read_layer(const SourceModel& source, int index);
// What is not quantised of it, in place: norms and biases.
void round_vectors(HostLayer& layer, DType dtype);

struct LinearInputs {
  int64_t width = 0, rows = 0;
  std::vector<float> products;    // sum of x^T x, [width][width], both triangles when complete
  std::vector<double> magnitude;  // [width] sum of |x|
  std::vector<float> mean_magnitude() const;
};
using LayerInputs = std::array<LinearInputs, kInputPoints>;

}  // namespace pagefold
