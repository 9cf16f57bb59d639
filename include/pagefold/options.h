// Every option of the engine and of a request, with unit, default and the reason for the default.
// Plain data: the command line, the HTTP server and library users all fill these structs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pagefold {

// How one token is chosen from the logits. Neutral values leave the distribution as the model gives
// it.
struct SamplingOptions {
  // Divides the logits. Below 1e-4: greedy (smaller values would overflow to the same answer).
  // Range >= 0.
  float temperature = 1.0f;
  // Smallest set of tokens whose probability reaches top_p. Range (0, 1]; 1 = off.
  float top_p = 1.0f;
  // The top_k most likely tokens; 0 or -1 = off.
  int32_t top_k = 0;
  // Drops tokens below min_p times the best token's probability. Range [0, 1]; 0 = off.
  float min_p = 0.0f;
  // > 1 pushes down tokens seen in the prompt or the output (divides positive, multiplies negative
  // logits). Range > 0.
  float repetition_penalty = 1.0f;
  // Subtracted once from tokens already generated. Range [-2, 2].
  float presence_penalty = 0.0f;
  // Subtracted for each time a token was generated. Range [-2, 2].
  float frequency_penalty = 0.0f;
  // Added to the logits of these token ids; values are clamped to [-100, 100]. -100 bans in
  // practice.
  std::vector<std::pair<int32_t, float>> logit_bias;
  // Only these token ids can be chosen; empty: all. An end token that is not among them never
  // comes.
  std::vector<int32_t> allowed_token_ids;
  // Runs of token ids that the answer does not contain: the last id of one is banned where the
  // generated tokens end with those before it, unless nothing else could come. None is empty.
  std::vector<std::vector<int32_t>> bad_words;
  // The stream of random numbers. Absent: the engine draws one and reports nothing; the answer is
  // then not repeatable.
  std::optional<uint64_t> seed;

  // Most tokens to generate. Absent: the room left in the context.
  std::optional<int64_t> max_tokens;
  // End tokens and stop tokens cannot be chosen before this many tokens. Range [0, max_tokens].
  int64_t min_tokens = 0;
  // Generate on after an end token (it is emitted like any other).
  bool ignore_eos = false;
  // These token ids end the generation, like the model's own end tokens.
  std::vector<int32_t> stop_token_ids;
  // These strings end the generation and are cut from the text. At most 16, none empty.
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;

  // Report the log-probability of each chosen token and of this many most likely ones. Absent:
  // none. 0..20.
  std::optional<int32_t> logprobs;
  // The same for each prompt token.
  std::optional<int32_t> prompt_logprobs;
  // Special tokens are left out of the text.
  bool skip_special_tokens = true;
};

// The KV-cache compression wishes of a request: "policy", "budget" ... as key = value words.
// Keys and values are checked against the registries when the request is submitted. Empty = the
// server's default.
using KvOptions = std::map<std::string, std::string>;

// How an engine is set up. Sizes in bytes or tokens as named.
struct EngineOptions {
  // A .gguf file or a folder with config.json, *.safetensors and tokenizer.json.
  std::string model;
  // Name reported by the server and accepted in requests. Empty: the model's file or folder name.
  std::string served_model_name;

  // Type of matmul inputs and unquantised weights: auto, float16 (half), bfloat16, float32 (float).
  // auto: the checkpoint's own 16-bit type, else bfloat16. Accumulation and the residual stream are
  // always float32.
  std::string dtype = "auto";
  // Format of the weights: auto (what the checkpoint says), awq, gptq, fp8, bitsandbytes,
  // compressed-tensors, gguf, none. A contradiction is an error; fp8 and bitsandbytes also quantise
  // a 16-bit checkpoint while it loads.
  std::string quantization = "auto";
  // Type of cached keys and values: auto (= dtype, or the checkpoint's own recipe), float32,
  // float16, bfloat16, fp8 (= fp8_e4m3), fp8_e5m2, int8, int4.
  std::string kv_cache_dtype = "auto";
  // The same for values alone. auto: as the keys.
  std::string kv_cache_dtype_v = "auto";
  // Elements that share a scale in int8 and int4 caches: 0 = the token's whole head, 32, or -1 =
  // auto: 32 where keys are int4, else 0.
  int kv_cache_group = -1;
  // The cache in pages of 2 MiB: read a few per cent faster, but a page goes back to the operating
  // system only once no block of it is in use. For servers without compression.
  bool kv_huge_pages = false;
  // Inputs of the quantised matmuls: 16 = kept in dtype, int8 = one scale per 32 values (as
  // llama.cpp does), auto = int8 for GGUF block types, 16 otherwise.
  std::string activations = "auto";

  // Compute threads. 0: one per usable core.
  int threads = 0;
  // Slots a block; a multiple of 16 (the width of the kernels). 16 frees memory in the finest
  // grain.
  int block_size = 16;
  // Most sequences computed in one step.
  int max_num_seqs = 64;
  // Most tokens computed in one step, prompts and decodes together. 512 keeps a CPU step under a
  // second.
  int max_num_batched_tokens = 512;
  // Longest sequence, prompt and answer together. 0: the model's own limit.
  int64_t max_model_len = 0;
  // Permit max_model_len beyond the model's own limit (a warning is logged; quality is not
  // promised).
  bool allow_long_context = false;
  // Bytes of the KV pool. 0: memory_utilization of the memory that is free at start.
  uint64_t kv_cache_memory_bytes = 0;
  // Share of the free memory used for the KV pool when kv_cache_memory_bytes is 0. Range (0, 1].
  // Half, because a CPU server shares the machine; memory is committed only as it is used.
  double memory_utilization = 0.5;
  // Requests waiting for admission; one more is refused (HTTP 429).
  int max_queued_requests = 1024;
  // Requests share the cache blocks of the tokens they begin with. Off here, since one answer has
  // nobody to share with; `serve` turns it on.
  bool enable_prefix_caching = false;
  // Bytes of the KV pool that blocks kept for later requests may take. 0: a quarter of the pool.
  // They are given up at once when running requests need the room.
  uint64_t prefix_cache_memory_bytes = 0;
  // Seconds after their last use that such blocks are kept; 0: until the room is needed. Five
  // minutes, so that an idle server gives its memory back.
  double prefix_cache_ttl = 300;
  // "optimistic": a request is admitted when its known tokens fit and 2 % of the pool stay free;
  // others may be paused later. "guaranteed": when the most it may ever hold fits; nobody is
  // paused.
  std::string admission = "optimistic";
  // Where the cache of a paused request goes, in a file without a name that vanishes with the
  // process. Empty: $TMPDIR, else /var/tmp. "off": it is computed again instead.
  std::string kv_spill_dir;
  // Most bytes of that file. When they are used up, or the disk is full, no request is admitted
  // until a paused one has gone on.
  uint64_t kv_spill_bytes = uint64_t{4} << 30;
  // Compression applied to requests that name none.
  KvOptions kv;
  // What compression keeps of a conversation when a request does not say (kv.keep): a comma list of
  // roles (system, user, assistant, tool) and `tools`, the definitions of tools. Empty: nothing;
  // `serve` keeps system,tools, since answers go wrong first where instructions are forgotten.
  std::string kv_keep;
  // Seconds that the cache of a finished answer is kept for the next turn of its kv.session.
  double kv_session_ttl = 300;
  // Most bytes of the KV pool that such caches take; 0: a quarter of it. They are given up, the
  // oldest first, before a running request is paused.
  uint64_t kv_session_bytes = 0;
  // Query statistics that requests may name ("calibration": NAME): "NAME=PATH", or the NAME of one
  // that `pagefold calibrate -o NAME` put into the cache folder.
  std::vector<std::string> kv_calibrations;
  // "auto" picks the best the CPU has; scalar, avx2, avx512 force one (for tests and comparisons).
  std::string isa = "auto";
};

}  // namespace pagefold
