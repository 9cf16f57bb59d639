// Whole folders in a weight format, beside the same weights in float32.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_runner.h"
#include "model/quant_writer.h"

namespace pagefold::testing {

inline bool is_linear(const TinyTensor& t) {
  return t.shape.size() == 2 && t.name.find("_proj.weight") != std::string::npos;
}

// The same model twice: in the format, and in float32.
struct QuantPair {
  TempFolder folder;
  Json config;
  std::filesystem::path quantised = folder.path() / "quantised", plain = folder.path() / "plain";

  // skip: linear layers that stay plain.
  QuantPair(const QuantForm& form, Json base, std::string_view skip = "none") : config(base) {
    SafetensorsWriter q;
    QuantWriter writer(q, form);
    std::vector<TinyTensor> tensors = tiny_tensors(config);
    for (TinyTensor& t : tensors) {
      if (is_linear(t) && t.name.find(skip) == std::string::npos) {
        const std::string module = t.name.substr(0, t.name.size() - 7);
        t.values = writer.add(module, t.shape[0], t.shape[1]);
      } else {
        q.add_tensor(t.name, TensorType::F32, t.shape, quantize(TensorType::F32, t.values));
      }
    }
    write_hf(plain, config, tensors, TensorType::F32);
    config["quantization_config"] = writer.config();
    std::filesystem::create_directories(quantised);
    write_config();
    q.write_to(quantised / "model.safetensors");
  }
  void write_config() const { write_text(quantised / "config.json", dump_json(config)); }
};

inline QuantForm form_named(std::string_view name) {
  for (const QuantForm& f : quant_forms()) {
    if (f.name == name) return f;
  }
  throw std::invalid_argument("no such form");
}

}  // namespace pagefold::testing
