// deps: pagefold_model
// config.json texts, and GGUF files whose metadata are read as a configuration. What is accepted
// must hold the promises that loading relies on.
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/rope.h"

namespace {

void check(const pagefold::ModelConfig& c) {
  const pagefold::ModelShape& s = c.shape;
  const auto want = [](bool ok) {
    if (!ok) __builtin_trap();
  };
  want(s.n_layers >= 1 && s.n_heads >= 1 && s.n_kv_heads >= 1 && s.n_heads % s.n_kv_heads == 0);
  want(s.head_dim >= 8 && s.head_dim % 8 == 0 && c.rope.rot <= s.head_dim && c.rope.rot % 2 == 0);
  want(s.layer_window.size() == static_cast<size_t>(s.n_layers));
  const pagefold::RopeFrequencies f = pagefold::rope_frequencies(c.rope);
  want(f.frequency.size() == static_cast<size_t>(c.rope.rot / 2) && std::isfinite(f.magnitude));
  for (const double v : f.frequency) want(std::isfinite(v));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pagefold;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!text.starts_with("GGUF")) {
    const auto json = parse_json(text);
    if (!json.ok()) return 0;
    const auto config = config_from_hf(*json, "config.json");
    if (config.ok()) check(*config);
    return 0;
  }
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  const auto file = GgufFile::parse(bytes, "fuzz.gguf");
  if (!file.ok()) return 0;
  const auto config = config_from_gguf(*file);
  if (config.ok()) check(*config);
  return 0;
}
