// What `pagefold quantize` can be told. Plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pagefold {

// Of all methods; each reads its own.
struct MethodOptions {
  int bits = 4;            // gptq
  int64_t group = 0;       // awq, gptq; 0: the largest of 128, 64, 32 that divides all widths
  bool symmetric = true;   // gptq
  bool act_order = false;  // gptq
  double damp = 0.01;      // gptq
  bool clip = true;        // awq
  std::string fp8_scales = "channel";  // or tensor, block
  bool double_quant = true;            // bnb-nf4
};

struct QuantizeOptions {
  std::string model;   // a .gguf file or a folder
  std::string output;  // the folder to make
  bool force = false;  // the output folder may hold a model, which is replaced
  std::string method = "none";
  MethodOptions how;
  // Of what is not quantised. auto: float16 for awq and gptq, whose scales are; else the source's
  // own 16-bit type, bfloat16 where it has none.
  std::string dtype = "auto";
  uint64_t max_shard_bytes = 5'000'000'000;

  std::string text;         // to calibrate on and to measure with; empty: the model writes its own
  int64_t tokens = 0;       // most to calibrate on; 0: 16,384 of a text, 8,192 of its own
  int64_t held_out = 1024;  // most to measure with; 0: nothing is measured
  uint64_t seed = 0;        // of what the model writes
  int threads = 0;          // 0: one a usable core
  std::string isa = "auto";
  // What is going on, steps done and in all; may be empty.
  std::function<void(std::string_view, uint64_t, uint64_t)> progress;
  // Asked between steps: true ends the work with an error. May be empty.
  std::function<bool()> stop;
};

}  // namespace pagefold
