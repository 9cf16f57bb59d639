// What a model's cache costs, without loading it: `pagefold calc` as a library.
//
//   pagefold::CalcRequest request;
//   request.model = "qwen3-8b";
//   request.tokens = 32768;
//   auto sizes = pagefold::calculate(request);
//   if (sizes.ok()) std::printf("%lu bytes\n", sizes->kv.peak_bytes);
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pagefold/options.h"

namespace pagefold {

// A model by hand: layers, and the KV heads with head_dim or a latent. Absent: not given.
struct CalcShape {
  std::optional<int64_t> layers;
  std::optional<int64_t> kv_heads, head_dim;
  std::optional<int64_t> v_head_dim;               // as head_dim
  std::optional<int64_t> window, window_layers;    // tokens; of so many layers (all that store)
  std::optional<int64_t> shared_layers;            // store nothing: they read another layer's cache
  std::optional<int64_t> latent, rope_dim;         // latent attention, in place of heads
  std::optional<int64_t> nope_dim;                 // with heads and v_head_dim: for mla = expanded
  std::optional<int64_t> index_dim, index_layers;  // an indexer's keys; of so many layers (all)
  std::optional<int64_t> heads, hidden, ffn, vocab, params, context;
  bool any() const {
    return layers || kv_heads || head_dim || v_head_dim || window || window_layers ||
           shared_layers || latent || rope_dim || nope_dim || index_dim || index_layers || heads ||
           hidden || ffn || vocab || params || context;
  }
};

struct CalcRequest {
  // One of these three. model: a folder, a .gguf, a config.json, or the name of a preset.
  std::string model;
  std::string config_json;
  CalcShape shape;

  std::optional<int64_t> tokens;  // cached tokens a sequence; absent: the model's context, or 4096
  int64_t prompt_tokens = 0;      // of them
  int64_t sequences = 1;
  std::vector<int64_t> lengths;  // tokens of each sequence, instead of the two above
  int64_t shared_prefix = 0;     // tokens that all sequences begin with

  std::string engine = "pagefold";  // whose rounding: pagefold, vllm, llama.cpp
  std::string dtype = "auto";       // of weights that are not quantised: as stored, else bfloat16
  std::string kv_cache_dtype = "auto", kv_cache_dtype_v = "auto";
  int kv_cache_group = -1;             // as EngineOptions'; auto is 0 for other engines
  std::string weight_format = "auto";  // of weights that are sized from a configuration
  std::string mla = "latent";          // latent, packed_fp8, expanded
  std::string index_dtype = "auto";    // of the keys of a sparse attention's indexer; auto: as keys
  std::string state_dtype = "float32";  // of recurrent states; their convolutions have 16 bits
  bool draft_layers = false;            // count the layers of draft heads, too
  int64_t state_snapshots = 0;          // copies of recurrent states kept beside the running one
  int64_t block_size = 16;
  int64_t context_padding = 32;  // llama.cpp: its context is a multiple of this
  int64_t tensor_parallel_size = 1;
  int64_t max_num_batched_tokens = 512;  // most tokens a step: the chunk of a long prompt
  int64_t max_num_seqs = 64;

  std::optional<uint64_t> memory_bytes;           // of a device: weights, activations and cache
  std::optional<uint64_t> kv_cache_memory_bytes;  // of the cache alone
  KvOptions kv;                                   // compression: policy, budget, interval ...
};

// Of one device: a rank of the tensor-parallel group.
struct CalcKv {
  uint64_t bytes_per_token = 0;       // all layers, windows not yet full
  uint64_t ideal_bytes = 0;           // the elements and their scales that are needed, no rounding
  uint64_t allocated_bytes = 0;       // as the engine allocates them, nothing evicted
  uint64_t steady_bytes = 0;          // after the last compaction
  uint64_t peak_bytes = 0;            // the most at any time
  uint64_t reserved_bytes = 0;        // what the scheduler counts before it admits them
  uint64_t full_attention_bytes = 0;  // ideal, if windows were ignored
  uint64_t state_bytes = 0;           // recurrent states, not in the figures above
  uint64_t draft_bytes_per_token =
      0;                    // draft heads: in the figures above where they were asked for
  int64_t compactions = 0;  // of the first sequence
  bool exact = true;  // false: steady and peak are upper bounds, as scores decide what is kept
};
struct CalcGroup {
  std::string kind;  // full, sliding, chunked, mla, gated_delta_net, mamba2, none
  int64_t layers = 0, window = 0;
  uint64_t bytes_per_token = 0;  // of all its layers
  uint64_t state_bytes = 0;      // of a sequence
  std::string formula;           // the same with its numbers put in
};
struct CalcFits {
  int64_t max_tokens = 0;              // in all, over as many sequences as you like
  int64_t max_sequences = 0;           // of the length asked for
  int64_t max_context = 0;             // of one sequence
  bool context_is_the_models = false;  // more would fit; the model's own limit, or 2^30
};

struct CalcResult {
  std::string model, architecture, engine;
  bool runs_here = false;  // whether pagefold runs this model
  std::string not_run_because;
  int64_t layers = 0, context = 0;
  std::vector<int64_t> lengths;
  int64_t prompt_tokens = 0;
  std::string kv_cache_dtype, kv_cache_dtype_v, policy;
  int64_t tensor_parallel_size = 1;
  CalcKv kv;
  std::vector<CalcGroup> groups;
  std::optional<uint64_t> weights_bytes;  // of one device; absent: not known
  bool weights_exact = false;             // read from the headers of a file
  std::string weight_format;
  std::optional<uint64_t> activations_bytes;  // an estimate of buffers and logits
  std::optional<CalcFits> fits;               // when a memory budget was given
  std::string formula;                        // of ideal_bytes and allocated_bytes
  std::vector<std::string> notes;
};

// kInvalidArgument: a value out of range, an unknown type, policy or preset, sizes beyond 2^63.
// kUnimplemented: an unknown architecture. kDataLoss: a damaged file. kNotFound: no such file.
absl::StatusOr<CalcResult> calculate(const CalcRequest& request);

// A request as JSON, with the names of the command line's flags ("tokens", "kv_cache_dtype" ...,
// "kv": {"policy": ...}, "config": {...}, "shape": {...}). Unknown fields are refused.
absl::StatusOr<CalcRequest> calc_request_from_json(std::string_view json);
std::string calc_result_to_json(const CalcResult& result);
// For people.
std::string calc_result_to_text(const CalcResult& result);
// The names of the presets.
std::vector<std::string> calc_presets();

}  // namespace pagefold
