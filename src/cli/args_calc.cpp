// Flags of `pagefold calc`.
#include "api/calc_limits.h"
#include "calc/layers.h"
#include "cli/args_flags.h"

namespace pagefold {
namespace {

// Like count(), into an optional.
template <class T>
void maybe(CLI::App& app, const std::string& names, std::optional<T>& out, const std::string& help,
           int64_t most = calc_limits::kSize) {
  flag(app, names, help, [&out, most](Text text) -> Status {
    PF_ASSIGN(const uint64_t value, parse_human_count(text, 1, static_cast<uint64_t>(most)));
    out = static_cast<T>(value);
    return ok_status();
  });
}

Status read_lengths(Text text, std::vector<int64_t>& out) {
  out.clear();
  std::string_view rest = text;
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    PF_ASSIGN(const uint64_t value,
              parse_human_count(rest.substr(0, comma), 1, uint64_t{calc_limits::kTokens}));
    out.push_back(static_cast<int64_t>(value));
    if (comma == rest.size()) return ok_status();
    rest.remove_prefix(comma + 1);
  }
}

void add_workload(CLI::App& app, CalcRequest& q) {
  app.option_defaults()->group("Sequences");
  maybe(app, "-T,--tokens,-c,--ctx-size", q.tokens,
        "cached tokens of a sequence; default: the model's context", calc_limits::kTokens);
  count(app, "--prompt-tokens", q.prompt_tokens, 0, "of them, read as a prompt (default 0)",
        calc_limits::kTokens);
  count(app, "--sequences", q.sequences, 1, "sequences at a time (default 1)",
        calc_limits::kSequences);
  flag(app, "--lengths", "tokens of each sequence, 4096,8192,...: instead of the two above",
       [&q](Text text) { return read_lengths(text, q.lengths); });
  count(app, "--shared-prefix", q.shared_prefix, 0, "first tokens that all sequences share",
        calc_limits::kTokens);
}

void add_cache(CLI::App& app, CalcRequest& q) {
  app.option_defaults()->group("Cache");
  text_flag(app, "--engine", q.engine, "whose rounding: pagefold (default), vllm, llama.cpp");
  text_flag(app, "--kv-cache-dtype", q.kv_cache_dtype,
            "cached keys and values: float32, float16, bfloat16, fp8, int8, int4; for llama.cpp "
            "f16, q8_0, q4_0 ...");
  text_flag(app, "--kv-cache-dtype-v", q.kv_cache_dtype_v, "cached values alone");
  kv_group_flag(app, q.kv_cache_group);
  integer(app, "--block-size", q.block_size, 1, calc_limits::kBlockSize,
          "slots a block (default 16)");
  integer(app, "--context-padding", q.context_padding, 1, calc_limits::kPadding,
          "llama.cpp: its context is a multiple of this (default 32)");
  word(app, "--mla", q.mla, {"latent", "packed_fp8", "expanded"}, "how latent attention is cached");
  text_flag(app, "--index-dtype", q.index_dtype, "keys of a sparse attention's indexer");
  word(app, "--state-dtype", q.state_dtype, {"float32", "bfloat16", "float16"}, "recurrent states");
  switch_flag(app, "draft-layers", q.draft_layers, "count the layers of draft heads, too");
  integer(app, "--state-snapshots", q.state_snapshots, 0, calc_limits::kSnapshots,
          "copies of recurrent states kept beside the running one");
  integer(app, "--tensor-parallel-size,--tp", q.tensor_parallel_size, 1, calc_limits::kRanks,
          "devices; figures are of one");
  count(app, "--max-num-batched-tokens,--chunk", q.max_num_batched_tokens, 1,
        "most tokens a step (default 512)", calc_limits::kBatchedTokens);
  count(app, "--max-num-seqs", q.max_num_seqs, 1, "most sequences a step (default 64)",
        calc_limits::kSeqs);
}

void add_policy(CLI::App& app, CalcRequest& q) {
  app.option_defaults()->group("KV compression");
  const std::pair<const char*, const char*> keys[] = {
      {"policy", "full, streaming, h2o, snapkv ...; h2o:alloc=adaptive sets more"},
      {"budget", "slots a layer and KV head, or a share of the tokens so far (25%)"},
      {"interval", "tokens between compactions"},
      {"sinks", "first slots that are always kept"},
      {"recent", "newest slots that are always kept"},
      {"protect-prompt", "on: the prompt is kept, on top of the budget"},
      {"packing", "order, fill, block, off"},
      {"prefill-evict", "on: long prompts are compacted while they are read"},
      {"prefill-chunk", "tokens between those compactions"}};
  for (const auto& [name, help] : keys) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    flag(app, fmt::format("--kv-{}", name), help, [&q, key](Text text) {
      q.kv[key] = text;
      return ok_status();
    });
  }
}

void add_memory(CLI::App& app, CalcRequest& q) {
  app.option_defaults()->group("Memory");
  maybe(app, "--memory", q.memory_bytes,
        "bytes of a device for weights, activations and cache: what fits is printed");
  maybe(app, "--kv-cache-memory-bytes", q.kv_cache_memory_bytes, "the same for the cache alone");
  text_flag(app, "--weight-format", q.weight_format,
            "of weights that no file gives: bfloat16, fp8, awq, gptq, nf4, q4_0, q4_k ...");
  text_flag(app, "--dtype", q.dtype, "activations and unquantised weights");
}

void add_shape(CLI::App& app, CalcShape& s) {
  app.option_defaults()->group("A model by hand");
  maybe(app, "--layers", s.layers, "layers", calc::kMostLayers);
  maybe(app, "--kv-heads", s.kv_heads, "KV heads (not query heads)", calc::kMostDim);
  maybe(app, "--head-dim", s.head_dim, "elements of a head's key", calc::kMostDim);
  maybe(app, "--v-head-dim", s.v_head_dim, "elements of a head's value; default: as the key",
        calc::kMostDim);
  maybe(app, "--window", s.window, "tokens of a sliding window", calc::kMostWindow);
  maybe(app, "--window-layers", s.window_layers, "layers with that window; default: all",
        calc::kMostLayers);
  maybe(app, "--shared-layers", s.shared_layers,
        "layers that store nothing, as they read another layer's cache", calc::kMostLayers);
  maybe(app, "--latent", s.latent,
        "elements of the latent (MLA), in place of --kv-heads and --head-dim", calc::kMostDim);
  maybe(app, "--rope-dim", s.rope_dim, "elements of its rotated key", calc::kMostDim);
  maybe(app, "--nope-dim", s.nope_dim,
        "elements of a head's key without rotation, for --mla expanded", calc::kMostDim);
  maybe(app, "--index-dim", s.index_dim, "elements of an indexer's key beside the latent",
        calc::kMostDim);
  maybe(app, "--index-layers", s.index_layers, "layers with an indexer; default: all",
        calc::kMostLayers);
  maybe(app, "--heads", s.heads, "query heads, for activations", calc::kMostDim);
  maybe(app, "--hidden", s.hidden, "width of the residual stream, for activations");
  maybe(app, "--ffn", s.ffn, "feed-forward size, for activations");
  maybe(app, "--vocab", s.vocab, "vocabulary, for logits and tables");
  maybe(app, "--params", s.params, "weights in all");
}

}  // namespace

void add_calc(CLI::App& app, CalcCommand& c) {
  auto* positional = app.add_option(
      "model", c.request.model,
      "a folder, a .gguf, a config.json, a preset (qwen3-8b) or the name of a pulled model");
  positional->type_name("MODEL");
  text_flag(app, "-m,--model", c.request.model, "the same as the positional MODEL")
      ->excludes(positional);
  switch_flag(app, "presets", c.presets, "list the presets");
  add_json(app, c.json);
  add_workload(app, c.request);
  add_cache(app, c.request);
  add_policy(app, c.request);
  add_memory(app, c.request);
  add_shape(app, c.request.shape);
  app.option_defaults()->group("Options");
}

}  // namespace pagefold
