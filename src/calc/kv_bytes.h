// Bytes of cached keys, values and states: element types with their scales, and the formulas of
// every kind of layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "calc/checked.h"
#include "calc/layers.h"

namespace pagefold::calc {

enum class EngineRules : uint8_t { pagefold, vllm, llama_cpp };
std::string_view rules_name(EngineRules rules);
// "pagefold", "vllm", "llama.cpp" (any case). Anything else lists them.
Result<EngineRules> parse_rules(std::string_view word);

// A type of cached elements: one of ours, or a block type of ggml.
struct KvType {
  std::string name;
  std::optional<DType> own;
  int64_t block = 1, block_bytes = 0;  // ggml: elements and bytes of a block

  // One token's row of `dim` elements, scales included. group: see KvFormat.
  uint64_t row_bytes(int64_t dim, int64_t group) const {
    if (own) return kv_row_bytes(*own, static_cast<size_t>(dim), static_cast<size_t>(group));
    return static_cast<uint64_t>(ceil_div(dim, block) * block_bytes);
  }
};
// pagefold: the words of --kv-cache-dtype; vllm: those without int8 and int4; llama.cpp: f32, f16,
// bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl, and our names of the first three. auto: bfloat16 (f16
// for llama.cpp). Unknown words are refused by name.
Result<KvType> parse_kv_type(std::string_view word, EngineRules rules);

enum class MlaForm : uint8_t {
  latent,      // latent + rotated key, what every modern engine keeps
  packed_fp8,  // 512 fp8, four float32 scales, 64 bfloat16: 656 bytes for 512 + 64
  expanded,    // keys and values of all heads
};

struct CacheTypes {
  KvType k, v;
  int64_t group = 0;
  MlaForm mla = MlaForm::latent;
  std::optional<KvType> index;              // of the indexer's keys; absent: as k
  int64_t conv_bytes = 2, state_bytes = 4;  // an element of a fixed state
  int64_t snapshots = 0;                    // more copies of fixed states, for prefix reuse
};
// Rows that a type's blocks do not divide are refused.
Status check_types(const Model& model, const CacheTypes& types);

// What one rank of a tensor-parallel group holds: KV heads are shared out, at least one each; a
// latent is copied to every rank.
LayerGroup on_one_rank(const LayerGroup& group, int64_t ranks);

// Of one layer: a token, of all KV heads (0 for fixed states) ...
uint64_t layer_token_bytes(const LayerGroup& group, const CacheTypes& types);
// ... as a product, "8 KV heads x (128 x 2 + 128 x 2)".
std::string layer_token_formula(const LayerGroup& group, const CacheTypes& types);
// ... and a sequence's fixed state (0 for the others), snapshots included.
uint64_t layer_state_bytes(const LayerGroup& group, const CacheTypes& types);
std::string layer_state_formula(const LayerGroup& group, const CacheTypes& types);

// All layers, of a token while nothing has left a window.
Checked token_bytes(const std::vector<LayerGroup>& groups, const CacheTypes& types);
Checked state_bytes(const std::vector<LayerGroup>& groups, const CacheTypes& types);

// Tokens that a layer of this kind needs of a sequence of `tokens`, to go on from there.
int64_t needed_tokens(const LayerGroup& group, int64_t tokens, bool windows);
// Exactly the elements that are needed: no pages, no fixed states. windows: honoured.
Checked ideal_bytes(const std::vector<LayerGroup>& groups, const CacheTypes& types, int64_t tokens,
                    bool windows = true);

}  // namespace pagefold::calc
