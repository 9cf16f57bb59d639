// Requests and results of calculate() as JSON and as text.
#include <algorithm>

#include "api/calc_limits.h"
#include "base/integer_range.h"
#include "base/json.h"
#include "base/result.h"
#include "calc/layers.h"
#include "calc/words.h"
#include "pagefold/calc.h"

namespace pagefold {
namespace {

bool within(const Json& v, int64_t low, int64_t high) {
  if (!v.is_number_integer()) return false;
  if (v.is_number_unsigned() && v.get<uint64_t>() > uint64_t{INT64_MAX}) return false;
  return v.get<int64_t>() >= low && v.get<int64_t>() <= high;
}

// Reads the fields of an object one by one; what is left over is unknown.
class Reader {
 public:
  Reader(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

  Status integer(const char* key, int64_t& out, int64_t low, int64_t high) {
    const Json* v = take(key);
    if (v == nullptr) return ok_status();
    if (!v->is_number()) return wrong(key, integer_range(low, high), *v);
    if (!within(*v, low, high)) {
      return bad_input("{}{}: must be {}", prefix_, key, integer_range(low, high));
    }
    out = v->get<int64_t>();
    return ok_status();
  }
  Status integer(const char* key, std::optional<int64_t>& out, int64_t low, int64_t high) {
    if (!present(key)) return ok_status();
    return integer(key, out.emplace(), low, high);
  }
  Status size(const char* key, std::optional<uint64_t>& out) {
    std::optional<int64_t> value;
    PF_TRY(integer(key, value, 1, INT64_MAX));
    if (value) out = static_cast<uint64_t>(*value);
    return ok_status();
  }
  Status text(const char* key, std::string& out) {
    const Json* v = take(key);
    if (v == nullptr) return ok_status();
    if (!v->is_string()) return wrong(key, "a string", *v);
    out = v->get<std::string>();
    return ok_status();
  }
  Status boolean(const char* key, bool& out) {
    const Json* v = take(key);
    if (v == nullptr) return ok_status();
    if (!v->is_boolean()) return wrong(key, "true or false", *v);
    out = v->get<bool>();
    return ok_status();
  }
  const Json* object(const char* key) { return take(key); }
  Status wrong(const char* key, std::string_view expected, const Json& got) const {
    return bad_input("{}{}: must be {}, not {}", prefix_, key, expected, json_kind(got));
  }
  Status done() const {
    for (const auto& [key, value] : object_.items()) {
      bool known = false;
      for (const std::string& k : taken_) known = known || k == key;
      if (!known) {
        std::string list;
        for (const std::string& k : taken_) calc::list(list, k);
        return bad_input("{}: an unknown field; known: {}",
                         prefix_.empty() ? "calc" : prefix_.substr(0, prefix_.size() - 1), list);
      }
    }
    return ok_status();
  }

 private:
  bool present(const char* key) {
    taken_.emplace_back(key);
    const auto it = object_.find(key);
    return it != object_.end() && !it->is_null();
  }
  const Json* take(const char* key) { return present(key) ? &*object_.find(key) : nullptr; }

  const Json& object_;
  const std::string prefix_;
  std::vector<std::string> taken_;
};

Status read_shape(const Json& object, CalcShape& s) {
  if (!object.is_object()) return bad_input("shape: must be an object");
  Reader r(object, "shape.");
  PF_TRY(r.integer("layers", s.layers, 1, calc::kMostLayers));
  PF_TRY(r.integer("kv_heads", s.kv_heads, 0, calc::kMostDim));
  PF_TRY(r.integer("head_dim", s.head_dim, 0, calc::kMostDim));
  PF_TRY(r.integer("v_head_dim", s.v_head_dim, 0, calc::kMostDim));
  PF_TRY(r.integer("window", s.window, 0, calc::kMostWindow));
  PF_TRY(r.integer("window_layers", s.window_layers, 0, calc::kMostLayers));
  PF_TRY(r.integer("shared_layers", s.shared_layers, 0, calc::kMostLayers));
  PF_TRY(r.integer("latent", s.latent, 0, calc::kMostDim));
  PF_TRY(r.integer("rope_dim", s.rope_dim, 0, calc::kMostDim));
  PF_TRY(r.integer("nope_dim", s.nope_dim, 0, calc::kMostDim));
  PF_TRY(r.integer("index_dim", s.index_dim, 0, calc::kMostDim));
  PF_TRY(r.integer("index_layers", s.index_layers, 0, calc::kMostLayers));
  PF_TRY(r.integer("heads", s.heads, 0, calc::kMostDim));
  PF_TRY(r.integer("hidden", s.hidden, 0, calc_limits::kSize));
  PF_TRY(r.integer("ffn", s.ffn, 0, calc_limits::kSize));
  PF_TRY(r.integer("vocab", s.vocab, 0, calc_limits::kSize));
  PF_TRY(r.integer("params", s.params, 0, calc_limits::kSize));
  PF_TRY(r.integer("context", s.context, 0, calc_limits::kSize));
  return r.done();
}

// "auto", 0 or 32.
Status read_group(Reader& r, int& out) {
  const Json* v = r.object("kv_cache_group");
  if (v == nullptr || *v == "auto") return ok_status();
  if (*v != 0 && *v != 32) return bad_input("kv_cache_group: must be \"auto\", 0 or 32");
  out = v->get<int>();
  return ok_status();
}

Status read_lengths(const Json& list, std::vector<int64_t>& out) {
  if (!list.is_array() || list.size() > calc_limits::kLengths) {
    return bad_input("lengths: must be a list of at most {} integers", calc_limits::kLengths);
  }
  for (const Json& n : list) {
    if (!within(n, 1, calc_limits::kTokens)) {
      return bad_input("lengths: each must be {}", integer_range(1, calc_limits::kTokens));
    }
    out.push_back(n.get<int64_t>());
  }
  return out.empty() ? bad_input("lengths: the list is empty") : ok_status();
}

// {"policy": "h2o", "budget": 1024, "protect_prompt": true}: the words of a request's "kv".
Status read_kv(const Json& object, KvOptions& out) {
  if (!object.is_object()) return bad_input("kv: must be an object");
  for (const auto& [key, value] : object.items()) {
    if (value.is_string()) {
      out[key] = value.get<std::string>();
    } else if (value.is_boolean()) {
      out[key] = value.get<bool>() ? "on" : "off";
    } else if (value.is_number()) {
      out[key] = dump_json(value);
    } else {
      return bad_input("kv: values must be words, numbers or true and false, got {}",
                       json_kind(value));
    }
  }
  return ok_status();
}

Json optional_json(const std::optional<uint64_t>& v) { return v ? Json(*v) : Json(nullptr); }

Json kv_json(const CalcKv& kv) {
  return {{"bytes_per_token", kv.bytes_per_token},
          {"ideal_bytes", kv.ideal_bytes},
          {"allocated_bytes", kv.allocated_bytes},
          {"steady_bytes", kv.steady_bytes},
          {"peak_bytes", kv.peak_bytes},
          {"reserved_bytes", kv.reserved_bytes},
          {"full_attention_bytes", kv.full_attention_bytes},
          {"state_bytes", kv.state_bytes},
          {"draft_bytes_per_token", kv.draft_bytes_per_token},
          {"compactions", kv.compactions},
          {"exact", kv.exact}};
}

std::string human(uint64_t bytes) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string size_line(std::string_view name, uint64_t bytes, std::string_view note = {}) {
  return fmt::format("{:<22}{:>20}  {:<12}{}\n", name, bytes, human(bytes), note);
}

}  // namespace

absl::StatusOr<CalcRequest> calc_request_from_json(std::string_view text) {
  PF_ASSIGN(const Json json, parse_json(text));
  if (!json.is_object()) return bad_input("expected an object, not {}", json_kind(json));
  CalcRequest q;
  Reader r(json, "");
  PF_TRY(r.text("model", q.model));
  if (const Json* config = r.object("config")) {
    if (!config->is_object()) return r.wrong("config", "an object", *config);
    q.config_json = dump_json(*config);
  }
  if (const Json* shape = r.object("shape")) PF_TRY(read_shape(*shape, q.shape));
  PF_TRY(r.integer("tokens", q.tokens, 1, calc_limits::kTokens));
  PF_TRY(r.integer("prompt_tokens", q.prompt_tokens, 0, calc_limits::kTokens));
  PF_TRY(r.integer("sequences", q.sequences, 1, calc_limits::kSequences));
  if (const Json* list = r.object("lengths")) PF_TRY(read_lengths(*list, q.lengths));
  PF_TRY(r.integer("shared_prefix", q.shared_prefix, 0, calc_limits::kTokens));
  PF_TRY(r.text("engine", q.engine));
  PF_TRY(r.text("dtype", q.dtype));
  PF_TRY(r.text("kv_cache_dtype", q.kv_cache_dtype));
  PF_TRY(r.text("kv_cache_dtype_v", q.kv_cache_dtype_v));
  PF_TRY(read_group(r, q.kv_cache_group));
  PF_TRY(r.text("weight_format", q.weight_format));
  PF_TRY(r.text("mla", q.mla));
  PF_TRY(r.text("index_dtype", q.index_dtype));
  PF_TRY(r.text("state_dtype", q.state_dtype));
  PF_TRY(r.boolean("draft_layers", q.draft_layers));
  PF_TRY(r.integer("state_snapshots", q.state_snapshots, 0, calc_limits::kSnapshots));
  PF_TRY(r.integer("block_size", q.block_size, 1, calc_limits::kBlockSize));
  PF_TRY(r.integer("context_padding", q.context_padding, 1, calc_limits::kPadding));
  PF_TRY(r.integer("tensor_parallel_size", q.tensor_parallel_size, 1, calc_limits::kRanks));
  PF_TRY(r.integer("max_num_batched_tokens", q.max_num_batched_tokens, 1,
                   calc_limits::kBatchedTokens));
  PF_TRY(r.integer("max_num_seqs", q.max_num_seqs, 1, calc_limits::kSeqs));
  PF_TRY(r.size("memory_bytes", q.memory_bytes));
  PF_TRY(r.size("kv_cache_memory_bytes", q.kv_cache_memory_bytes));
  if (const Json* kv = r.object("kv")) PF_TRY(read_kv(*kv, q.kv));
  PF_TRY(r.done());
  return q;
}

std::string calc_result_to_json(const CalcResult& c) {
  Json groups = Json::array();
  for (const CalcGroup& g : c.groups) {
    groups.push_back({{"kind", g.kind},
                      {"layers", g.layers},
                      {"window", g.window > 0 ? Json(g.window) : Json(nullptr)},
                      {"bytes_per_token", g.bytes_per_token},
                      {"state_bytes", g.state_bytes},
                      {"formula", g.formula}});
  }
  Json fits = nullptr;
  if (c.fits) {
    fits = {{"max_tokens", c.fits->max_tokens},
            {"max_sequences", c.fits->max_sequences},
            {"max_context", c.fits->max_context},
            {"context_is_the_models", c.fits->context_is_the_models}};
  }
  const bool even = std::equal(c.lengths.begin() + (c.lengths.empty() ? 0 : 1), c.lengths.end(),
                               c.lengths.begin());
  const Json out = {
      {"model", c.model},
      {"architecture", c.architecture},
      {"runs_here", c.runs_here},
      {"not_run_because", c.runs_here ? Json(nullptr) : Json(c.not_run_because)},
      {"engine", c.engine},
      {"layers", c.layers},
      {"context", c.context > 0 ? Json(c.context) : Json(nullptr)},
      {"tokens", even && !c.lengths.empty() ? Json(c.lengths.front()) : Json(c.lengths)},
      {"prompt_tokens", c.prompt_tokens},
      {"sequences", c.lengths.size()},
      {"kv_cache_dtype", c.kv_cache_dtype},
      {"kv_cache_dtype_v", c.kv_cache_dtype_v},
      {"policy", c.policy},
      {"tensor_parallel_size", c.tensor_parallel_size},
      {"kv", kv_json(c.kv)},
      {"groups", std::move(groups)},
      {"weights_bytes", optional_json(c.weights_bytes)},
      {"weights_exact", c.weights_exact},
      {"weight_format", c.weight_format},
      {"activations_bytes", optional_json(c.activations_bytes)},
      {"fits", std::move(fits)},
      {"formula", c.formula},
      {"notes", c.notes}};
  return dump_json(out);
}

std::string calc_result_to_text(const CalcResult& c) {
  std::string out = fmt::format("{} ({}), {} layers", c.model, c.architecture, c.layers);
  if (c.context > 0) out += fmt::format(", context {}", c.context);
  out += fmt::format("; rules of {}\n", c.engine);
  if (!c.runs_here) out += fmt::format("not run by pagefold: {}\n", c.not_run_because);
  const int64_t longest =
      c.lengths.empty() ? 0 : *std::max_element(c.lengths.begin(), c.lengths.end());
  out += fmt::format("{} sequence(s) of {}{} tokens, cache {}{}, policy {}\n\n", c.lengths.size(),
                     c.lengths.size() > 1 ? "at most " : "", longest, c.kv_cache_dtype,
                     c.kv_cache_dtype_v == c.kv_cache_dtype ? "" : " and " + c.kv_cache_dtype_v,
                     c.policy);
  out += c.formula + "\n\n";
  const std::string_view bound = c.kv.exact ? "" : "at most";
  out += size_line("KV a token", c.kv.bytes_per_token);
  out += size_line("KV needed", c.kv.ideal_bytes);
  if (c.kv.full_attention_bytes != c.kv.ideal_bytes) {
    out += size_line("  windows ignored", c.kv.full_attention_bytes);
  }
  out += size_line("KV allocated", c.kv.allocated_bytes);
  out += size_line("KV steady", c.kv.steady_bytes, bound);
  out += size_line("KV peak", c.kv.peak_bytes, bound);
  if (c.kv.state_bytes > 0) out += size_line("states", c.kv.state_bytes);
  if (c.kv.draft_bytes_per_token > 0) {
    out += size_line("draft heads, a token", c.kv.draft_bytes_per_token);
  }
  if (c.weights_bytes) {
    out += size_line("weights", *c.weights_bytes,
                     c.weights_exact ? "exact" : "of the dims, " + c.weight_format);
  } else {
    out += "weights                not known\n";
  }
  if (c.activations_bytes) out += size_line("activations", *c.activations_bytes, "estimate");
  if (c.fits) {
    out += fmt::format("\nfits: {} tokens in all, {} sequences of {}, context {}{}\n",
                       c.fits->max_tokens, c.fits->max_sequences, longest, c.fits->max_context,
                       c.fits->context_is_the_models ? " (the model's own limit)" : "");
  }
  for (const std::string& note : c.notes) out += fmt::format("note: {}\n", note);
  return out;
}

}  // namespace pagefold
