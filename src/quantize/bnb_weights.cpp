#include "quantize/bnb_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"
#include "formats/quant/bitsandbytes.h"

namespace pagefold {
namespace {

// Decade i has 2^i values: the middles of equal steps from 0.1 to 1. In the order of operations of
// the library's float32 arithmetic, so that the table has the same bits.
std::array<float, 256> make_dynamic_table() {
  std::array<float, 256> out{};
  size_t n = 0;
  constexpr float kDecade[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  for (int i = 0; i < 7; ++i) {
    const int points = (1 << i) + 1;
    const float step = (1.0f - 0.1f) / static_cast<float>(points - 1);
    const auto point = [&](int j) {
      return j < points / 2 ? 0.1f + step * static_cast<float>(j)
                            : 1.0f - step * static_cast<float>(points - 1 - j);
    };
    for (int j = 0; j + 1 < points; ++j) {
      const float middle = (point(j) + point(j + 1)) / 2.0f;
      out[n++] = kDecade[i] * middle;
      out[n++] = -(kDecade[i] * middle);
    }
  }
  out[n++] = 0.0f;
  out[n++] = 1.0f;
  std::sort(out.begin(), out.end());
  return out;
}

// Of an ascending table; of two equally near values the lower one.
size_t nearest_ascending(std::span<const float> table, float v) {
  const auto above = std::lower_bound(table.begin(), table.end(), v);
  if (above == table.begin()) return 0;
  const auto i = static_cast<size_t>(above - table.begin());
  if (above == table.end()) return i - 1;
  return v - table[i - 1] <= table[i] - v ? i - 1 : i;
}

uint8_t nearest_code(Bnb4Type type, float v) {
  if (type == Bnb4Type::nf4) return static_cast<uint8_t>(nf4_code(v));
  const auto& table = bnb4_table(type);
  size_t best = 0;
  for (size_t i = 1; i < table.size(); ++i) {
    if (std::abs(v - table[i]) < std::abs(v - table[best])) best = i;
  }
  return static_cast<uint8_t>(best);
}

void quantize_absmax(Bnb4Weights& w) {
  double sum = 0;
  for (const float a : w.absmax) sum += double{a};
  w.offset = static_cast<float>(sum / static_cast<double>(w.absmax.size()));
  const auto& table = bnb_dynamic_table();
  w.codes.resize(w.absmax.size());
  for (size_t at = 0; at < w.absmax.size(); at += static_cast<size_t>(w.nested_block)) {
    const size_t end = std::min(w.absmax.size(), at + static_cast<size_t>(w.nested_block));
    float most = 0;
    for (size_t i = at; i < end; ++i) most = std::max(most, std::abs(w.absmax[i] - w.offset));
    w.nested_absmax.push_back(most);
    for (size_t i = at; i < end; ++i) {
      const float v = most > 0 ? (w.absmax[i] - w.offset) / most : 0.0f;
      w.codes[i] = static_cast<uint8_t>(nearest_ascending(table, v));
    }
  }
}

template <class T>
OutTensor tensor(std::string suffix, TensorType type, std::vector<int64_t> shape, const T* data,
                 size_t n) {
  OutTensor t{std::move(suffix), type, std::move(shape), {}};
  t.bytes.resize(n * sizeof(T));
  std::memcpy(t.bytes.data(), data, t.bytes.size());
  return t;
}
template <class V>
OutTensor list(std::string suffix, TensorType type, const V& v) {
  return tensor(std::move(suffix), type, {static_cast<int64_t>(v.size())}, v.data(), v.size());
}

}  // namespace

const std::array<float, 16>& bnb4_table(Bnb4Type type) {
  return type == Bnb4Type::nf4 ? nf4_table() : fp4_table();
}

const std::array<float, 256>& bnb_dynamic_table() {
  static const std::array<float, 256> table = make_dynamic_table();
  return table;
}

Bnb4Weights quantize_bnb4(const Matrix& w, Bnb4Type type, bool nested) {
  Bnb4Weights out;
  out.type = type;
  out.rows = w.rows;
  out.cols = w.cols;
  out.nested = nested;
  const size_t n = w.values.size(), block = static_cast<size_t>(out.block);
  out.packed.resize((n + 1) / 2);
  const uint8_t zero = nearest_code(type, 0.0f);
  if (n % 2 != 0) out.packed.back() = zero;
  for (size_t at = 0; at < n; at += block) {
    const size_t end = std::min(n, at + block);
    float most = 0;
    for (size_t i = at; i < end; ++i) most = std::max(most, std::abs(w.values[i]));
    out.absmax.push_back(most);
    for (size_t i = at; i < end; ++i) {
      const uint8_t code = most > 0 ? nearest_code(type, w.values[i] / most) : zero;
      out.packed[i / 2] |= static_cast<uint8_t>(i % 2 == 0 ? code << 4 : code);
    }
  }
  if (nested) quantize_absmax(out);
  return out;
}

Matrix bnb4_values(const Bnb4Weights& w) {
  Matrix out{w.rows, w.cols, std::vector<float>(static_cast<size_t>(w.rows * w.cols))};
  const auto& table = bnb4_table(w.type);
  for (size_t i = 0; i < out.values.size(); ++i) {
    const size_t block = i / static_cast<size_t>(w.block);
    float absmax = w.absmax[block];
    if (w.nested) {
      absmax = bnb_dynamic_table()[w.codes[block]] *
                   w.nested_absmax[block / static_cast<size_t>(w.nested_block)] +
               w.offset;
    }
    const uint8_t code = i % 2 == 0 ? w.packed[i / 2] >> 4 : w.packed[i / 2] & 15;
    out.values[i] = table[code] * absmax;
  }
  return out;
}

std::string bnb4_state(const Bnb4Weights& w, DType dtype) {
  std::string text = fmt::format(
      R"({{"quant_type": "{}", "blocksize": {}, "dtype": "{}", "shape": [{}, {}])",
      w.type == Bnb4Type::nf4 ? "nf4" : "fp4", w.block, dtype_name(dtype), w.rows, w.cols);
  if (w.nested) {
    text +=
        fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": {})",
                    w.nested_block, double{w.offset});
  }
  return text + "}";
}

std::vector<OutTensor> pack_bnb4(const Bnb4Weights& w, DType dtype) {
  const std::string state = bnb4_state(w, dtype);
  const auto n = static_cast<int64_t>(w.packed.size());
  std::vector<OutTensor> out;
  out.push_back(tensor("weight", TensorType::U8, {n, 1}, w.packed.data(), w.packed.size()));
  if (w.nested) {
    out.push_back(list("weight.absmax", TensorType::U8, w.codes));
    out.push_back(list("weight.nested_absmax", TensorType::F32, w.nested_absmax));
    out.push_back(list("weight.nested_quant_map", TensorType::F32, bnb_dynamic_table()));
  } else {
    out.push_back(list("weight.absmax", TensorType::F32, w.absmax));
  }
  out.push_back(list("weight.quant_map", TensorType::F32, bnb4_table(w.type)));
  out.push_back(list(w.type == Bnb4Type::nf4 ? "weight.quant_state.bitsandbytes__nf4"
                                             : "weight.quant_state.bitsandbytes__fp4",
                     TensorType::U8, state));
  return out;
}

Bnb8Weights quantize_bnb8(const Matrix& w) {
  Bnb8Weights out{w.rows, w.cols, {}, {}};
  out.q.resize(w.values.size());
  for (int64_t r = 0; r < w.rows; ++r) {
    float most = 0;
    for (int64_t c = 0; c < w.cols; ++c) most = std::max(most, std::abs(w.row(r)[c]));
    out.scb.push_back(most);
    const float scale = most > 0 ? 127.0f / most : 0.0f;
    for (int64_t c = 0; c < w.cols; ++c) {
      const float q = std::clamp(std::rint(w.row(r)[c] * scale), -127.0f, 127.0f);
      out.q[static_cast<size_t>(r * w.cols + c)] = static_cast<int8_t>(q);
    }
  }
  return out;
}

Matrix bnb8_values(const Bnb8Weights& w) {
  Matrix out{w.rows, w.cols, std::vector<float>(w.q.size())};
  for (int64_t r = 0; r < w.rows; ++r) {
    const float scale = w.scb[static_cast<size_t>(r)] / 127.0f;
    for (int64_t c = 0; c < w.cols; ++c)
      out.row(r)[c] = static_cast<float>(w.q[static_cast<size_t>(r * w.cols + c)]) * scale;
  }
  return out;
}

std::vector<OutTensor> pack_bnb8(const Bnb8Weights& w) {
  OutTensor q = tensor("weight", TensorType::I8, {w.rows, w.cols}, w.q.data(), w.q.size());
  const uint8_t row_major = 0;
  return {std::move(q), list("SCB", TensorType::F32, w.scb),
          tensor("weight_format", TensorType::U8, {}, &row_major, 1)};
}

}  // namespace pagefold
