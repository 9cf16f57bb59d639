#include "quantize/weight_method.h"

#include <algorithm>

#include "quantize/awq.h"
#include "quantize/bnb_weights.h"
#include "quantize/fp8_weights.h"
#include "quantize/gptq.h"
#include "quantize/tensor_output.h"

namespace pagefold {
namespace {

class Plain final : public WeightMethod {
 public:
  explicit Plain(DType dtype) : dtype_(dtype) {}
  Json config() const override { return nullptr; }
  int tensors_per_linear() const override { return 1; }
  Status check(int64_t, int64_t) const override { return ok_status(); }
  Status quantize(HostLayer& layer, const LayerInputs&, const LinearAlgebra&,
                  const Emit& emit) override {
    for (const HostLayer::Named& l : layer.linears()) {
      Matrix& w = *l.weight;
      const int64_t n = w.rows * w.cols;
      PF_TRY(emit(l.module, {OutTensor{"weight",
                                       tensor_type_of(dtype_),
                                       {w.rows, w.cols},
                                       encode_plain(dtype_, w.values.data(), n)}}));
      round_to(dtype_, w.values.data(), n);
    }
    return ok_status();
  }

 private:
  DType dtype_;
};

class Awq final : public WeightMethod {
 public:
  Awq(int64_t group, bool clip, int head_dim) : head_dim_(head_dim) {
    options_.group = group;
    options_.clip = clip;
  }
  bool needs_inputs() const override { return true; }
  Json config() const override {
    return {{"quant_method", "awq"},
            {"bits", 4},
            {"group_size", options_.group},
            {"zero_point", true},
            {"version", "gemm"},
            {"modules_to_not_convert", Json::array({"lm_head"})}};
  }
  int tensors_per_linear() const override { return 3; }
  Status check(int64_t rows, int64_t cols) const override {
    if (rows % 8 != 0) return bad_input("{} outputs are no multiple of 8, as AWQ needs", rows);
    if (cols % options_.group != 0)
      return bad_input("{} inputs are no multiple of the group size {}", cols, options_.group);
    return ok_status();
  }
  Status quantize(HostLayer& layer, const LayerInputs& inputs, const LinearAlgebra& math,
                  const Emit& emit) override {
    const auto scales = awq_scale_layer(layer, head_dim_, inputs, options_, math);
    for (const HostLayer::Named& l : layer.linears()) {
      const auto point = static_cast<size_t>(l.input);
      // Queries and keys meet in a product of their own, which clipping does not see.
      const bool clip = options_.clip && l.weight != &layer.q && l.weight != &layer.k;
      const IntWeights q = awq_round(*l.weight, scales[point], inputs[point], clip, options_, math);
      PF_TRY(emit(l.module, pack_awq(q)));
      *l.weight = int_values(q);
    }
    return ok_status();
  }

 private:
  int head_dim_;
  AwqOptions options_;
};

class Gptq final : public WeightMethod {
 public:
  Gptq(int64_t group, const MethodOptions& o) {
    options_.rule = {.bits = o.bits, .symmetric = o.symmetric, .least_zero = 1};
    options_.group = group;
    options_.act_order = o.act_order;
    options_.damp = o.damp;
  }
  bool needs_inputs() const override { return true; }
  Json config() const override {
    return {{"quant_method", "gptq"},         {"bits", options_.rule.bits},
            {"group_size", options_.group},   {"desc_act", options_.act_order},
            {"sym", options_.rule.symmetric}, {"lm_head", false},
            {"checkpoint_format", "gptq"},    {"damp_percent", options_.damp},
            {"static_groups", false},         {"true_sequential", false}};
  }
  int tensors_per_linear() const override { return 4; }
  Status check(int64_t rows, int64_t cols) const override {
    const int bits = options_.rule.bits;
    for (const int64_t n : {rows, cols}) {
      if (n * bits % 32 != 0)
        return bad_input("{} x {} values of {} bits fill no whole words", rows, cols, bits);
    }
    if (cols % options_.group != 0)
      return bad_input("{} inputs are no multiple of the group size {}", cols, options_.group);
    return ok_status();
  }
  Status quantize(HostLayer& layer, const LayerInputs& inputs, const LinearAlgebra& math,
                  const Emit& emit) override {
    GptqInputs prepared;
    int point = -1;
    for (const HostLayer::Named& l : layer.linears()) {
      if (static_cast<int>(l.input) != point) {
        point = static_cast<int>(l.input);
        const LinearInputs& in = inputs[static_cast<size_t>(point)];
        auto made = gptq_inputs(in.products, in.width, options_, math);
        if (!made.ok()) return with_context(made.status(), l.module);
        prepared = *std::move(made);
      }
      const IntWeights q = gptq(*l.weight, prepared, options_, math);
      PF_TRY(emit(l.module, pack_gptq(q)));
      *l.weight = int_values(q);
    }
    return ok_status();
  }

 private:
  GptqOptions options_;
};

// Per channel in the words of compressed-tensors, else in those of the fp8 method.
class Fp8 final : public WeightMethod {
 public:
  Fp8(Fp8Scales scales, int64_t block) : scales_(scales), block_(block) {}
  Json config() const override {
    if (scales_ != Fp8Scales::channel) {
      Json out = {{"quant_method", "fp8"},
                  {"activation_scheme", "dynamic"},
                  {"fmt", "e4m3"},
                  {"ignored_layers", Json::array({"lm_head"})},
                  {"modules_to_not_convert", Json::array({"lm_head"})}};
      if (scales_ == Fp8Scales::block) out["weight_block_size"] = Json::array({block_, block_});
      return out;
    }
    const auto args = [](const char* strategy, bool dynamic) {
      return Json{{"num_bits", 8},
                  {"type", "float"},
                  {"symmetric", true},
                  {"strategy", strategy},
                  {"dynamic", dynamic},
                  {"group_size", nullptr},
                  {"block_structure", nullptr},
                  {"actorder", nullptr}};
    };
    const Json group = {{"targets", Json::array({"Linear"})},
                        {"weights", args("channel", false)},
                        {"input_activations", args("token", true)},
                        {"output_activations", nullptr}};
    return {{"quant_method", "compressed-tensors"}, {"format", "float-quantized"},
            {"quantization_status", "compressed"},  {"config_groups", {{"group_0", group}}},
            {"ignore", Json::array({"lm_head"})},   {"kv_cache_scheme", nullptr}};
  }
  int tensors_per_linear() const override { return 2; }
  Status check(int64_t, int64_t) const override { return ok_status(); }
  Status quantize(HostLayer& layer, const LayerInputs&, const LinearAlgebra&,
                  const Emit& emit) override {
    for (const HostLayer::Named& l : layer.linears()) {
      const Fp8Weights q = quantize_fp8(*l.weight, scales_, block_);
      PF_TRY(emit(l.module, pack_fp8(q, scales_)));
      *l.weight = fp8_values(q);
    }
    return ok_status();
  }

 private:
  Fp8Scales scales_;
  int64_t block_;
};

class Bnb final : public WeightMethod {
 public:
  Bnb(bool four_bit, bool nested, DType dtype)
      : four_bit_(four_bit), nested_(nested), dtype_(dtype) {}
  Json config() const override {
    return {{"quant_method", "bitsandbytes"},
            {"load_in_4bit", four_bit_},
            {"load_in_8bit", !four_bit_},
            {"bnb_4bit_quant_type", "nf4"},
            {"bnb_4bit_use_double_quant", nested_},
            {"bnb_4bit_compute_dtype", std::string(dtype_name(dtype_))},
            {"bnb_4bit_quant_storage", "uint8"},
            {"llm_int8_enable_fp32_cpu_offload", false},
            {"llm_int8_has_fp16_weight", false},
            {"llm_int8_skip_modules", Json::array({"lm_head"})},
            {"llm_int8_threshold", 6.0}};
  }
  int tensors_per_linear() const override { return four_bit_ ? 6 : 3; }
  Status check(int64_t, int64_t) const override { return ok_status(); }
  Status quantize(HostLayer& layer, const LayerInputs&, const LinearAlgebra&,
                  const Emit& emit) override {
    for (const HostLayer::Named& l : layer.linears()) {
      if (four_bit_) {
        const Bnb4Weights q = quantize_bnb4(*l.weight, Bnb4Type::nf4, nested_);
        PF_TRY(emit(l.module, pack_bnb4(q, dtype_)));
        *l.weight = bnb4_values(q);
      } else {
        const Bnb8Weights q = quantize_bnb8(*l.weight);
        PF_TRY(emit(l.module, pack_bnb8(q)));
        *l.weight = bnb8_values(q);
      }
    }
    return ok_status();
  }

 private:
  bool four_bit_, nested_;
  DType dtype_;
};

Result<int64_t> group_size(int64_t wanted, const ModelConfig& c) {
  const int64_t widths[] = {c.shape.hidden, int64_t{c.shape.n_heads} * c.shape.head_dim, c.ffn};
  const auto divides = [&](int64_t g) {
    return std::all_of(std::begin(widths), std::end(widths), [&](int64_t w) { return w % g == 0; });
  };
  if (wanted > 0) {
    if (divides(wanted)) return wanted;
    return bad_input("--group-size: {} does not divide the widths {}, {} and {}", wanted, widths[0],
                     widths[1], widths[2]);
  }
  for (const int64_t g : {128, 64, 32}) {
    if (divides(g)) return g;
  }
  return bad_input(
      "no group size of 128, 64 and 32 divides the widths {}, {} and {}; fp8, bnb-nf4 and bnb-int8 "
      "have no groups",
      widths[0], widths[1], widths[2]);
}

// The side of fp8 blocks: Transformers and vLLM read none that are cut off at an edge.
int64_t block_side(const ModelConfig& c) {
  const int64_t widths[] = {c.shape.hidden, int64_t{c.shape.n_heads} * c.shape.head_dim,
                            int64_t{c.shape.n_kv_heads} * c.shape.head_dim, c.ffn};
  for (const int64_t side : {128, 64, 32, 16}) {
    if (std::all_of(std::begin(widths), std::end(widths), [&](int64_t w) { return w % side == 0; }))
      return side;
  }
  return 128;
}

}  // namespace

Result<std::unique_ptr<WeightMethod>> make_weight_method(const std::string& name,
                                                         const MethodOptions& o, DType dtype,
                                                         const ModelConfig& config) {
  std::unique_ptr<WeightMethod> out;
  if (name == "none") {
    out = std::make_unique<Plain>(dtype);
  } else if (name == "awq") {
    PF_ASSIGN(const int64_t group, group_size(o.group, config));
    out = std::make_unique<Awq>(group, o.clip, config.shape.head_dim);
  } else if (name == "gptq") {
    PF_ASSIGN(const int64_t group, group_size(o.group, config));
    out = std::make_unique<Gptq>(group, o);
  } else if (name == "fp8") {
    const auto scales = o.fp8_scales == "tensor"  ? Fp8Scales::tensor
                        : o.fp8_scales == "block" ? Fp8Scales::block
                                                  : Fp8Scales::channel;
    out = std::make_unique<Fp8>(scales, block_side(config));
  } else if (name == "bnb-nf4" || name == "bnb-int8") {
    out = std::make_unique<Bnb>(name == "bnb-nf4", o.double_quant, dtype);
  } else {
    return bad_input("--method: '{}' is none of: awq, gptq, fp8, bnb-nf4, bnb-int8, none", name);
  }
  return out;
}

}  // namespace pagefold
