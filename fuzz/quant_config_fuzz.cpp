// deps: pagefold_model
// quantization_config objects and the quant_state of bitsandbytes: what is accepted must hold the
// promises that sources rely on, and patterns must come to an end.
#include <bit>
#include <cstdint>
#include <string_view>

#include "formats/quant/bitsandbytes.h"
#include "model/quant/quant_config.h"

namespace {

void want(bool ok) {
  if (!ok) __builtin_trap();
}

void check(const pagefold::WeightScheme& s) {
  using pagefold::WeightLayout;
  want(s.group == -1 || (s.group >= 1 && s.group <= (1 << 24)));
  want((s.block_out == 0) == (s.block_in == 0) && s.block_out >= 0 && s.block_in >= 0);
  if (s.layout == WeightLayout::awq) want(s.bits == 4);
  if (s.layout == WeightLayout::ct_packed) want(s.bits == 4 || s.bits == 8);
  if (s.layout == WeightLayout::gptq)
    want(s.bits == 2 || s.bits == 3 || s.bits == 4 || s.bits == 8);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pagefold;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto state = parse_bnb4_state(std::as_bytes(std::span(text.data(), text.size())));
  if (state.ok()) {
    want(std::has_single_bit(static_cast<uint64_t>(state->blocksize)));
    want(std::has_single_bit(static_cast<uint64_t>(state->nested_blocksize)));
  }
  const auto json = parse_json(text);
  if (!json.ok()) return 0;
  const auto config = parse_quant_config(*json, "fuzz");
  if (!config.ok()) return 0;
  for (const char* module :
       {"lm_head", "model.layers.0.self_attn.q_proj", "model.layers.10.mlp.down_proj"}) {
    const auto scheme = config->scheme_of(module);
    if (scheme.ok()) check(*scheme);
  }
  (void)config->description();
  return 0;
}
