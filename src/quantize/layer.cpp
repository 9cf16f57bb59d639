#include "quantize/layer.h"

#include "quantize/tensor_output.h"

namespace pagefold {

HostLayer read_layer(const SourceModel& source, int index) {
  const LayerTensors& t = source.layer(index);
  HostLayer l;
  const auto vector = [&](const SourceTensor& from) { return source.read(from).values; };
  const auto optional = [&](const std::vector<SourceTensor>& from) {
    return from.empty() ? std::vector<float>() : vector(from.front());
  };
  l.input_norm = vector(t.input_norm);
  l.post_norm = vector(t.post_norm);
  l.q_norm = optional(t.q_norm);
  l.k_norm = optional(t.k_norm);
  l.q_bias = optional(t.q_bias);
  l.k_bias = optional(t.k_bias);
  l.v_bias = optional(t.v_bias);
  l.o_bias = optional(t.o_bias);
  const std::array<const SourceTensor*, 7> matrices = {&t.q,    &t.k,  &t.v,   &t.o,
                                                       &t.gate, &t.up, &t.down};
  const auto linears = l.linears();
  for (size_t i = 0; i < matrices.size(); ++i) {
    *linears[i].weight = source.read(*matrices[i]);
    source.release(*matrices[i]);
  }
  return l;
}

void round_vectors(HostLayer& l, DType dtype) {
  for (std::vector<float>* v : {&l.input_norm, &l.post_norm, &l.q_norm, &l.k_norm, &l.q_bias,
                                &l.k_bias, &l.v_bias, &l.o_bias})
    round_to(dtype, v->data(), static_cast<int64_t>(v->size()));
}

std::vector<float> LinearInputs::mean_magnitude() const {
  std::vector<float> out;
  for (const double m : magnitude)
    out.push_back(static_cast<float>(m / static_cast<double>(rows > 0 ? rows : 1)));
  return out;
}

}  // namespace pagefold
