// The model that is converted: its tensors under the names and in the layout of a Hugging Face
// folder, whichever form it is stored in, as float32, a few rows at a time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model/load.h"

namespace pagefold {

// Row-major [rows][cols]. A vector has cols 1.
struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;
  float* row(int64_t r) { return values.data() + r * cols; }
  const float* row(int64_t r) const { return values.data() + r * cols; }
};

// One tensor of the checkpoint to be.
struct SourceTensor {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // [n] or [n_out, n_in]
  const TensorInfo* stored = nullptr;
  // GGUF files of the llama family store the rows of q and k with the two halves of a head
  // interleaved; head rows [0, half) and [half, dim) of ours are its even and odd ones. 0: not.
  int64_t interleaved_head = 0;

  int64_t rows() const { return shape[0]; }
  int64_t cols() const { return shape.size() == 2 ? shape[1] : 1; }
  bool is_matrix() const { return shape.size() == 2; }
};

// The linears of a layer, in the order they are computed.
struct LayerTensors {
  SourceTensor input_norm, q, k, v, o, post_norm, gate, up, down;
  std::vector<SourceTensor> q_bias, k_bias, v_bias, o_bias;  // none or one each
  std::vector<SourceTensor> q_norm, k_norm;
};

class SourceModel {
 public:
  // Refuses, by name, folders whose checkpoint is quantised already.
  static Result<SourceModel> open(const std::filesystem::path& path);

  const ModelFiles& files() const { return files_; }
  const ModelConfig& config() const { return files_.config; }
  const SourceTensor& embedding() const { return embedding_; }
  const SourceTensor& final_norm() const { return final_norm_; }
  const SourceTensor* head() const { return head_.empty() ? nullptr : head_.data(); }  // tied: null
  const LayerTensors& layer(int i) const { return layers_[static_cast<size_t>(i)]; }
  size_t n_tensors() const;
  int64_t n_weights() const;  // of all those tensors
  uint64_t stored_bytes() const;

  // Rows [first, first + n) of a tensor: out [n][cols].
  void read_rows(const SourceTensor& t, int64_t first, int64_t n, float* out) const;
  Matrix read(const SourceTensor& t) const;
  // The pages of the file that hold it may go.
  void release(const SourceTensor& t) const { drop_mapped(t.stored->data); }

 private:
  Result<SourceTensor> find(const std::string& name, std::vector<int64_t> shape,
                            int64_t interleaved_head = 0) const;
  Result<LayerTensors> find_layer(int i) const;
  Status find_all();
  template <class F>
  void for_all(F&& see) const;

  ModelFiles files_;
  SourceTensor embedding_, final_norm_;
  std::vector<SourceTensor> head_;
  std::vector<LayerTensors> layers_;
};

}  // namespace pagefold
