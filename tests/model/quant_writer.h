// Writes linear layers in the weight formats of quantised checkpoints, from the published layouts
// and apart from the code under test: every integer is placed bit by bit. The integers are drawn at
// random, so that every code occurs; what they stand for is returned.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "model/tiny_model.h"

namespace pagefold::testing {

struct QuantForm {
  std::string name;  // of the test
  std::string kind;  // awq, gptq, ct_packed, ct_int8, fp8, bnb4, bnb8
  int bits = 4;
  int64_t group = 32;  // -1: one a row
  bool asymmetric = false;
  bool v2 = false;         // gptq
  bool act_order = false;  // gptq, ct_packed
  bool nested = false;     // bnb4
  std::string shape;       // of fp8 and int8 scales: tensor, channel, group, block
  std::string quant_type = "nf4";
  TensorType scale_type = TensorType::F16;
};

// 32-bit words; a value is written bit by bit.
class BitWords {
 public:
  explicit BitWords(int64_t words) : words_(static_cast<size_t>(words), 0) {}
  // bit `at` of word `word`, counted over `stride` words: the stream goes word, word + stride ...
  void put(int64_t word, int64_t stride, int64_t at, int bits, int value) {
    for (int b = 0; b < bits; ++b) {
      const int64_t bit = at + b;
      if (value >> b & 1) words_[static_cast<size_t>(word + bit / 32 * stride)] |= 1u << (bit % 32);
    }
  }
  Bytes bytes() const {
    Bytes out;
    for (const uint32_t w : words_) append_raw(out, w);
    return out;
  }

 private:
  std::vector<uint32_t> words_;
};

class QuantWriter {
 public:
  QuantWriter(SafetensorsWriter& file, const QuantForm& form) : file_(file), f_(form) {}

  // Adds the layer's tensors; returns its weights [n_out][n_in].
  std::vector<float> add(const std::string& module, int64_t n_out, int64_t n_in) {
    module_ = module;
    n_ = n_out;
    k_ = n_in;
    seed_ = fnv1a(module + f_.name);
    draw_ = 0;
    group_ = f_.group < 0 ? k_ : f_.group;
    groups_ = k_ / group_;
    if (f_.kind == "awq") return awq();
    if (f_.kind == "gptq") return gptq();
    if (f_.kind == "ct_packed") return ct_packed();
    if (f_.kind == "ct_int8" || f_.kind == "fp8") return scaled();
    if (f_.kind == "bnb4") return bnb4();
    return bnb8();
  }

  Json config() const {
    if (f_.kind == "awq") {
      return {{"quant_method", "awq"},
              {"bits", 4},
              {"group_size", f_.group},
              {"zero_point", true},
              {"version", "gemm"}};
    }
    if (f_.kind == "gptq") {
      Json c = {{"quant_method", "gptq"},
                {"bits", f_.bits},
                {"group_size", f_.group},
                {"sym", !f_.asymmetric},
                {"desc_act", f_.act_order}};
      if (f_.v2) c["checkpoint_format"] = "gptq_v2";
      return c;
    }
    if (f_.kind == "bnb4") {
      return {{"quant_method", "bitsandbytes"},
              {"load_in_4bit", true},
              {"bnb_4bit_quant_type", f_.quant_type},
              {"llm_int8_skip_modules", nullptr}};
    }
    if (f_.kind == "bnb8") return {{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}};
    if (f_.kind == "fp8" && f_.shape != "channel") {
      Json c = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
      if (f_.shape == "block") c["weight_block_size"] = {kBlockOut, kBlockIn};
      return c;
    }
    return ct_config();
  }

 private:
  static constexpr int64_t kBlockOut = 24, kBlockIn = 32;

  int random(int low, int high) {
    return low + static_cast<int>(splitmix(seed_, draw_++) % static_cast<uint64_t>(high - low + 1));
  }
  // About 1/16 of the largest integer, so that activations stay tame.
  float random_scale(float top, TensorType type) {
    const float s = static_cast<float>(random(64, 255)) / 255.0f * 0.25f / top;
    if (type == TensorType::F16) return f16_to_f32(f32_to_f16(s));
    return type == TensorType::BF16 ? bf16_to_f32(f32_to_bf16(s)) : s;
  }
  void add_tensor(const std::string& part, TensorType type, std::vector<int64_t> shape,
                  const Bytes& bytes) {
    file_.add_tensor(module_ + "." + part, type, shape, bytes);
  }
  void add_scales(const std::string& part, std::vector<int64_t> shape,
                  const std::vector<float>& scales) {
    add_tensor(part, f_.scale_type, shape, quantize(f_.scale_type, scales));
  }
  static size_t at(int64_t row, int64_t columns, int64_t column) {
    return static_cast<size_t>(row * columns + column);
  }

  // q[k][n], zero[g][n], scale[g][n] in 0 .. 2^bits - 1.
  struct Groups {
    std::vector<int> q, zero;
    std::vector<float> scale;
    std::vector<int32_t> g_idx;
  };
  Groups draw_groups(int bits) {
    Groups d;
    const int top = (1 << bits) - 1;
    d.q.resize(at(k_, n_, 0));
    for (int& q : d.q) q = random(0, top);
    for (int64_t i = 0; i < groups_ * n_; ++i) {
      d.zero.push_back(f_.asymmetric ? random(0, top) : 1 << (bits - 1));
      d.scale.push_back(random_scale(static_cast<float>(top), f_.scale_type));
    }
    for (int64_t k = 0; k < k_; ++k) d.g_idx.push_back(static_cast<int32_t>(k / group_));
    if (f_.act_order) {
      for (size_t k = d.g_idx.size(); k > 1; --k)
        std::swap(d.g_idx[k - 1], d.g_idx[static_cast<size_t>(random(0, static_cast<int>(k) - 1))]);
    }
    return d;
  }
  std::vector<float> values_of(const Groups& d) const {
    std::vector<float> w(at(n_, k_, 0));
    for (int64_t n = 0; n < n_; ++n) {
      for (int64_t k = 0; k < k_; ++k) {
        const size_t g = at(d.g_idx[static_cast<size_t>(k)], n_, n);
        w[at(n, k_, k)] = static_cast<float>(d.q[at(k, n_, n)] - d.zero[g]) * d.scale[g];
      }
    }
    return w;
  }
  void add_g_idx(const std::string& part, const Groups& d) {
    Bytes bytes;
    for (const int32_t g : d.g_idx) append_raw(bytes, g);
    add_tensor(part, TensorType::I32, {k_}, bytes);
  }

  std::vector<float> awq() {
    static constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};  // nibble i holds column order(i)
    const Groups d = draw_groups(4);
    const int64_t words = n_ / 8;
    BitWords q(k_ * words), z(groups_ * words);
    for (int64_t c = 0; c < words; ++c) {
      for (int i = 0; i < 8; ++i) {
        const int64_t n = c * 8 + kOrder[i];
        for (int64_t k = 0; k < k_; ++k) q.put(k * words + c, 1, i * 4, 4, d.q[at(k, n_, n)]);
        for (int64_t g = 0; g < groups_; ++g)
          z.put(g * words + c, 1, i * 4, 4, d.zero[at(g, n_, n)]);
      }
    }
    add_tensor("qweight", TensorType::I32, {k_, words}, q.bytes());
    add_tensor("qzeros", TensorType::I32, {groups_, words}, z.bytes());
    add_scales("scales", {groups_, n_}, d.scale);
    return values_of(d);
  }

  std::vector<float> gptq() {
    const Groups d = draw_groups(f_.bits);
    const int64_t rows = k_ * f_.bits / 32, words = n_ * f_.bits / 32;
    BitWords q(rows * n_), z(groups_ * words);
    for (int64_t n = 0; n < n_; ++n) {
      for (int64_t k = 0; k < k_; ++k) q.put(n, n_, k * f_.bits, f_.bits, d.q[at(k, n_, n)]);
      for (int64_t g = 0; g < groups_; ++g) {
        const int stored = d.zero[at(g, n_, n)] - (f_.v2 ? 0 : 1);  // -1: all bits set
        z.put(g * words, 1, n * f_.bits, f_.bits, stored);
      }
    }
    add_tensor("qweight", TensorType::I32, {rows, n_}, q.bytes());
    add_tensor("qzeros", TensorType::I32, {groups_, words}, z.bytes());
    add_scales("scales", {groups_, n_}, d.scale);
    add_g_idx("g_idx", d);
    return values_of(d);
  }

  std::vector<float> ct_packed() {
    const Groups d = draw_groups(f_.bits);
    const int64_t each = 32 / f_.bits, words = (k_ + each - 1) / each;
    BitWords q(n_ * words), z((n_ + each - 1) / each * groups_);
    std::vector<float> scales;
    for (int64_t n = 0; n < n_; ++n) {
      for (int64_t k = 0; k < k_; ++k) q.put(n * words, 1, k * f_.bits, f_.bits, d.q[at(k, n_, n)]);
      for (int64_t g = 0; g < groups_; ++g) {
        z.put(n / each * groups_ + g, 1, n % each * f_.bits, f_.bits, d.zero[at(g, n_, n)]);
        scales.push_back(d.scale[at(g, n_, n)]);
      }
    }
    add_tensor("weight_packed", TensorType::I32, {n_, words}, q.bytes());
    add_scales("weight_scale", {n_, groups_}, scales);
    Bytes shape;
    append_raw(shape, n_);
    append_raw(shape, k_);
    add_tensor("weight_shape", TensorType::I64, {2}, shape);
    if (f_.asymmetric)
      add_tensor("weight_zero_point", TensorType::I32, {(n_ + each - 1) / each, groups_},
                 z.bytes());
    if (f_.act_order) add_g_idx("weight_g_idx", d);
    return values_of(d);
  }

  // The value of an e4m3 code, from the definition.
  static float e4m3(int code) {
    const int exp = code >> 3 & 15, man = code & 7;
    const double v = exp == 0 ? std::ldexp(man, -9) : std::ldexp(8 + man, exp - 10);
    return static_cast<float>(code & 128 ? -v : v);
  }

  // int8 and fp8 matrices with scales in four shapes.
  std::vector<float> scaled() {
    const bool fp8 = f_.kind == "fp8";
    int64_t rows = 1, columns = 1, block_out = n_, block_in = k_;
    if (f_.shape == "channel" || f_.shape == "group") {
      rows = n_;
      block_out = 1;
    }
    if (f_.shape == "group") {
      columns = groups_;
      block_in = group_;
    }
    if (f_.shape == "block") {
      block_out = kBlockOut;
      block_in = kBlockIn;
      rows = (n_ + block_out - 1) / block_out;
      columns = (k_ + block_in - 1) / block_in;
    }
    std::vector<float> scale;
    Bytes zeros, codes;
    std::vector<int> zero;
    for (int64_t i = 0; i < rows * columns; ++i) {
      scale.push_back(random_scale(fp8 ? 448.0f : 127.0f, f_.scale_type));
      zero.push_back(f_.asymmetric ? random(-100, 100) : 0);
      append_raw(zeros, static_cast<int8_t>(zero.back()));
    }
    std::vector<float> w;
    for (int64_t n = 0; n < n_; ++n) {
      for (int64_t k = 0; k < k_; ++k) {
        const size_t s = at(n / block_out, columns, k / block_in);
        int code = random(-128, 127);
        if (fp8 && (code & 127) == 127) code ^= 1;  // not NaN
        append_raw(codes, static_cast<int8_t>(code));
        const float x = fp8 ? e4m3(code & 255) : static_cast<float>(code - zero[s]);
        w.push_back(x * scale[s]);
      }
    }
    add_tensor("weight", fp8 ? TensorType::F8_E4M3 : TensorType::I8, {n_, k_}, codes);
    const std::vector<int64_t> shape =
        f_.shape == "tensor" ? std::vector<int64_t>{} : std::vector<int64_t>{rows, columns};
    add_scales(f_.shape == "block" && fp8 ? "weight_scale_inv" : "weight_scale", shape, scale);
    if (f_.asymmetric) add_tensor("weight_zero_point", TensorType::I8, shape, zeros);
    if (fp8) add_tensor("input_scale", TensorType::F32, {}, quantize(TensorType::F32, {{0.5f}}));
    return w;
  }

  std::vector<float> bnb4() {
    constexpr int64_t kBlock = 64, kOuter = 16;  // short, so that there are several
    const int64_t blocks = (n_ * k_ + kBlock - 1) / kBlock;
    std::vector<float> table, absmax, nested_map, nested_absmax;
    for (int i = 0; i < 16; ++i) table.push_back(std::sin(static_cast<float>(i - 7) * 0.2f));
    for (int i = 0; i < 256; ++i) nested_map.push_back(static_cast<float>(i - 100) / 156.0f);
    Bytes codes;
    const float offset = 0.25f;
    for (int64_t b = 0; b < blocks; ++b) {
      if (b % kOuter == 0) nested_absmax.push_back(random_scale(2, TensorType::F32));
      const int code = random(0, 255);
      append_raw(codes, static_cast<uint8_t>(code));
      const float outer = nested_absmax.back() * nested_map[static_cast<size_t>(code)];
      absmax.push_back(f_.nested ? outer + offset : random_scale(1, TensorType::F32));
    }
    std::vector<float> w;
    Bytes packed;
    for (int64_t i = 0; i < n_ * k_; i += 2) {
      const int even = random(0, 15), odd = random(0, 15);
      append_raw(packed, static_cast<uint8_t>(even << 4 | odd));
      for (const int c : {even, odd})
        w.push_back(table[static_cast<size_t>(c)] * absmax[static_cast<size_t>(i / kBlock)]);
    }
    add_tensor("weight", TensorType::U8, {static_cast<int64_t>(packed.size()), 1}, packed);
    Json state = {{"quant_type", f_.quant_type},
                  {"blocksize", kBlock},
                  {"dtype", "bfloat16"},
                  {"shape", {n_, k_}}};
    const auto f32 = [&](const char* part, const std::vector<float>& values) {
      add_tensor(part, TensorType::F32, {static_cast<int64_t>(values.size())},
                 quantize(TensorType::F32, values));
    };
    f32("weight.quant_map", table);
    if (f_.nested) {
      add_tensor("weight.absmax", TensorType::U8, {blocks}, codes);
      f32("weight.nested_absmax", nested_absmax);
      f32("weight.nested_quant_map", nested_map);
      state["nested_blocksize"] = kOuter;
      state["nested_dtype"] = "float32";
      state["nested_offset"] = offset;
    } else {
      f32("weight.absmax", absmax);
    }
    const Bytes text = to_bytes(dump_json(state));
    add_tensor("weight.quant_state.bitsandbytes__" + f_.quant_type, TensorType::U8,
               {static_cast<int64_t>(text.size())}, text);
    return w;
  }

  std::vector<float> bnb8() {
    std::vector<float> scb, w;
    Bytes codes;
    for (int64_t n = 0; n < n_; ++n) {
      scb.push_back(random_scale(1, TensorType::F32));
      for (int64_t k = 0; k < k_; ++k) {
        const int q = random(-127, 127);
        append_raw(codes, static_cast<int8_t>(q));
        w.push_back(static_cast<float>(q) * (scb.back() / 127.0f));
      }
    }
    add_tensor("weight", TensorType::I8, {n_, k_}, codes);
    add_tensor("SCB", TensorType::F32, {n_}, quantize(TensorType::F32, scb));
    add_tensor("weight_format", TensorType::U8, {}, Bytes(1, std::byte{0}));
    return w;
  }

  Json ct_config() const {
    const bool fp8 = f_.kind == "fp8", packed = f_.kind == "ct_packed";
    const std::string strategy = packed ? (f_.group < 0 ? "channel" : "group") : f_.shape;
    Json weights = {{"num_bits", f_.bits},
                    {"type", fp8 ? "float" : "int"},
                    {"strategy", strategy},
                    {"symmetric", !f_.asymmetric},
                    {"group_size", nullptr},
                    {"dynamic", false},
                    {"actorder", f_.act_order ? Json("group") : Json(nullptr)}};
    if (strategy == "group") weights["group_size"] = group_or(f_.group);
    Json inputs = nullptr;
    if (f_.kind == "ct_int8") inputs = {{"num_bits", 8}, {"type", "int"}, {"dynamic", true}};
    return {{"quant_method", "compressed-tensors"},
            {"format", packed ? "pack-quantized"
                       : fp8  ? "float-quantized"
                              : "int-quantized"},
            {"config_groups",
             {{"group_0",
               {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", inputs}}}}},
            {"ignore", {"lm_head"}},
            {"kv_cache_scheme", nullptr},
            {"quantization_status", "compressed"}};
  }
  static int64_t group_or(int64_t group) { return group; }

  SafetensorsWriter& file_;
  const QuantForm& f_;
  std::string module_;
  int64_t n_ = 0, k_ = 0, group_ = 0, groups_ = 0;
  uint64_t seed_ = 0, draw_ = 0;
};

// Every form that loads.
inline std::vector<QuantForm> quant_forms() {
  using F = QuantForm;
  const TensorType f32 = TensorType::F32, bf16 = TensorType::BF16;
  return {
      F{.name = "awq_g32", .kind = "awq", .asymmetric = true},
      F{.name = "awq_row", .kind = "awq", .group = -1, .asymmetric = true},
      F{.name = "awq_g16", .kind = "awq", .group = 16, .asymmetric = true},
      F{.name = "gptq4_sym", .kind = "gptq"},
      F{.name = "gptq4_asym_v1", .kind = "gptq", .asymmetric = true},
      F{.name = "gptq4_asym_v2_act",
        .kind = "gptq",
        .asymmetric = true,
        .v2 = true,
        .act_order = true},
      F{.name = "gptq4_act_row", .kind = "gptq", .group = -1, .act_order = true},
      F{.name = "gptq8_sym", .kind = "gptq", .bits = 8},
      F{.name = "gptq8_asym_act", .kind = "gptq", .bits = 8, .asymmetric = true, .act_order = true},
      F{.name = "gptq3_asym", .kind = "gptq", .bits = 3, .asymmetric = true},
      F{.name = "gptq2_sym_v2", .kind = "gptq", .bits = 2, .v2 = true},
      F{.name = "ct4_sym", .kind = "ct_packed"},
      F{.name = "ct4_asym_bf16", .kind = "ct_packed", .asymmetric = true, .scale_type = bf16},
      F{.name = "ct4_act", .kind = "ct_packed", .asymmetric = true, .act_order = true},
      F{.name = "ct4_row", .kind = "ct_packed", .group = -1},
      F{.name = "ct8_sym", .kind = "ct_packed", .bits = 8},
      F{.name = "ct8_asym", .kind = "ct_packed", .bits = 8, .asymmetric = true},
      F{.name = "w8a8_channel", .kind = "ct_int8", .bits = 8, .shape = "channel"},
      F{.name = "w8a8_tensor_asym",
        .kind = "ct_int8",
        .bits = 8,
        .asymmetric = true,
        .shape = "tensor",
        .scale_type = f32},
      F{.name = "fp8_tensor", .kind = "fp8", .bits = 8, .shape = "tensor", .scale_type = f32},
      F{.name = "fp8_channel", .kind = "fp8", .bits = 8, .shape = "channel", .scale_type = bf16},
      F{.name = "fp8_block", .kind = "fp8", .bits = 8, .shape = "block", .scale_type = f32},
      F{.name = "bnb_nf4", .kind = "bnb4"},
      F{.name = "bnb_nf4_nested", .kind = "bnb4", .nested = true},
      F{.name = "bnb_fp4", .kind = "bnb4", .quant_type = "fp4"},
      F{.name = "bnb_int8", .kind = "bnb8"},
  };
}
inline void PrintTo(const QuantForm& f, std::ostream* out) { *out << f.name; }

}  // namespace pagefold::testing
