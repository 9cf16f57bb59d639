// What a matmul can be made of: every kind of weight and input, group, offset and type of scale.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace pagefold::kernels::test {

// For t4: normal-float numbers, and integers (of IQ4_NL, with the ends of int8 put in).
inline constexpr std::array<float, 16> kFloatTable = {
    -1.0f,      -0.6961928f, -0.5250731f, -0.3949175f, -0.2844414f, -0.1847734f, -0.0910500f, 0.0f,
    0.0795803f, 0.1609302f,  0.2461123f,  0.3379152f,  0.4407098f,  0.5626170f,  0.7229568f,  1.0f};
inline constexpr std::array<float, 16> kIntegerTable = {-128, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  127};

struct Config {
  PackKind kind;
  InputKind input;
  int group = 32;
  bool has_min = false;
  bool scale_f16 = true;
  bool has_zero = false;
  bool integers = false;  // of a t4 table

  bool quantised() const { return kind >= PackKind::w8; }
  bool nibbles() const { return kind == PackKind::w4 || kind == PackKind::t4; }
  PackedShape shape(int n_out, int n_in) const {
    PackedShape s;
    s.kind = kind;
    s.n_out = n_out;
    s.n_in = n_in;
    s.group = group;
    s.has_min = has_min;
    s.has_zero = has_zero;
    s.scale_f16 = scale_f16;
    return s;
  }
  const float* table() const {
    if (kind != PackKind::t4) return nullptr;
    return integers ? kIntegerTable.data() : kFloatTable.data();
  }
  // What a stored integer or code stands for, before scale and offset.
  double value(int8_t q) const {
    if (kind == PackKind::t4) return table()[q];
    if (kind != PackKind::fp8) return q;
    const int code = static_cast<uint8_t>(q), exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 0x7f) == 0x7f) return NAN;
    const double v = exponent == 0 ? std::ldexp(mantissa / 8.0, -6)
                                   : std::ldexp(1 + mantissa / 8.0, exponent - 7);
    return code >= 128 ? -v : v;
  }
  // Rows of int8 an input row has; 0: it is not int8.
  int int8_rows() const { return input == InputKind::i8 ? 1 : input == InputKind::i8x2 ? 2 : 0; }
  std::string name() const {
    const char* kinds[] = {"f32", "f16", "bf16", "w8", "w4", "t4", "fp8"};
    const char* inputs[] = {"f32", "bf16", "i8", "i8x2"};
    std::string s = kinds[static_cast<int>(kind)];
    s += std::string("_x_") + inputs[static_cast<int>(input)];
    if (quantised()) {
      s += "_g" + std::to_string(group) + (has_min ? "_min" : "") + (has_zero ? "_zero" : "") +
           (integers ? "_int" : "") + (scale_f16 ? "_h" : "_f");
    }
    return s;
  }
  // Widths that the groups divide, one group included.
  std::vector<int> widths() const {
    if (!quantised()) return {1, 7, 33, 64, 576};
    if (group <= 32) return {32, 64, 96, 576};
    return {group, 2 * group, 3 * group};
  }
};

inline std::vector<Config> all_configs() {
  std::vector<Config> all = {{PackKind::f32, InputKind::f32},
                             {PackKind::f16, InputKind::f32},
                             {PackKind::bf16, InputKind::f32},
                             {PackKind::bf16, InputKind::bf16}};
  for (const int group : {16, 32, 64, 128, 160}) {
    for (const bool f16 : {false, true}) {
      for (PackKind kind : {PackKind::w8, PackKind::w4}) {
        for (InputKind input : {InputKind::f32, InputKind::i8, InputKind::i8x2}) {
          all.push_back({kind, input, group, false, f16});
          all.push_back({kind, input, group, true, f16});
          all.push_back({kind, input, group, false, f16, true});
        }
      }
      all.push_back({PackKind::t4, InputKind::f32, group, false, f16});
      all.push_back({PackKind::t4, InputKind::i8, group, false, f16, false, true});
      all.push_back({PackKind::t4, InputKind::i8x2, group, false, f16, false, true});
      all.push_back({PackKind::fp8, InputKind::f32, group, false, f16});
    }
  }
  return all;
}

}  // namespace pagefold::kernels::test
