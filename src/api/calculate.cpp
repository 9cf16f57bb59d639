// calculate(): the order of things is that of CalcResult.
#include <algorithm>
#include <cmath>
#include <map>

#include "api/calc_limits.h"
#include "api/calc_parts.h"
#include "base/integer_range.h"
#include "calc/presets.h"
#include "calc/rules.h"
#include "calc/weights.h"
#include "calc/words.h"
#include "engine/config.h"

namespace pagefold {
namespace {

using calc::Checked;
using calc::EngineRules;

constexpr int64_t kMostThatFit = int64_t{1} << 24;    // sequences
constexpr int64_t kMostLengthsTimesLayers = 1 << 22;  // lengths that differ, each followed
constexpr TraceSteps kTrialSteps{int64_t{1} << 14};   // for each that is tried for what fits

struct Job {
  const CalcRequest& request;
  EngineRules rules = EngineRules::pagefold;
  CalcModelSource source;
  calc::CacheTypes types;
  std::vector<calc::LayerGroup> groups;  // of one rank
  std::vector<CalcPool> pools;
  std::vector<CalcBatch> batches;
  std::vector<int64_t> lengths;
  TraceSteps* steps = nullptr;
};

Status in_range(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return ok_status();
  return bad_input("{}: must be {}, got {}", name, integer_range(low, high), value);
}

Status check_numbers(const CalcRequest& r, EngineRules rules) {
  using namespace calc_limits;
  if (r.tokens) PF_TRY(in_range("tokens", *r.tokens, 1, kTokens));
  PF_TRY(in_range("prompt_tokens", r.prompt_tokens, 0, kTokens));
  PF_TRY(in_range("sequences", r.sequences, 1, kSequences));
  PF_TRY(in_range("shared_prefix", r.shared_prefix, 0, kTokens));
  PF_TRY(in_range("tensor_parallel_size", r.tensor_parallel_size, 1, kRanks));
  PF_TRY(in_range("max_num_batched_tokens", r.max_num_batched_tokens, 1, kBatchedTokens));
  PF_TRY(in_range("max_num_seqs", r.max_num_seqs, 1, kSeqs));
  PF_TRY(in_range("context_padding", r.context_padding, 1, kPadding));
  PF_TRY(in_range("state_snapshots", r.state_snapshots, 0, kSnapshots));
  PF_TRY(in_range("block_size", r.block_size, 1, kBlockSize));
  if (rules == EngineRules::pagefold) PF_TRY(check_block_size(static_cast<int>(r.block_size)));
  if (r.kv_cache_group != kAutoKvGroup && r.kv_cache_group != 0 && r.kv_cache_group != 32) {
    return bad_input("kv_cache_group: must be auto, 0 or 32, got {}", r.kv_cache_group);
  }
  if (r.lengths.size() > kLengths) return bad_input("lengths: at most {} sequences", kLengths);
  for (const int64_t n : r.lengths) PF_TRY(in_range("lengths", n, 1, kTokens));
  if (!r.lengths.empty() && (r.tokens || r.sequences != 1)) {
    return bad_input("lengths: instead of tokens and sequences, not beside them");
  }
  if (r.memory_bytes && *r.memory_bytes == 0) return bad_input("memory_bytes: must be above 0");
  if (r.kv_cache_memory_bytes && *r.kv_cache_memory_bytes == 0) {
    return bad_input("kv_cache_memory_bytes: must be above 0");
  }
  if (rules != EngineRules::pagefold && !r.kv.empty()) {
    return bad_input("kv: {} does not compress its cache here; leave the policy out",
                     calc::rules_name(rules));
  }
  return ok_status();
}

Result<calc::CacheTypes> cache_types(const CalcRequest& r, EngineRules rules,
                                     const CalcModelSource& source) {
  calc::CacheTypes t;
  const calc::Model& model = source.model;
  // auto: the checkpoint's recipe, else the type of activations, as the engine resolves it.
  std::string automatic = r.dtype != "auto" ? r.dtype : model.stored_dtype;
  if (r.dtype != "auto") PF_TRY(parse_dtype(r.dtype).status());
  const bool float32 = automatic == "float32" || automatic == "float";
  if (automatic != "float16" && automatic != "half" && !(float32 && r.dtype != "auto")) {
    automatic = "bfloat16";
  }
  if (source.kv_dtype) automatic = dtype_name(*source.kv_dtype);
  if (rules == EngineRules::llama_cpp) automatic = "f16";
  PF_ASSIGN(t.k,
            calc::parse_kv_type(r.kv_cache_dtype == "auto" ? automatic : r.kv_cache_dtype, rules));
  if (r.kv_cache_dtype_v == "auto") {
    t.v = t.k;
  } else {
    PF_ASSIGN(t.v, calc::parse_kv_type(r.kv_cache_dtype_v, rules));
  }
  t.group = r.kv_cache_group;
  const auto scaled = [&](const calc::KvType& type) {
    return rules == EngineRules::pagefold && type.own && dtype_has_scales(*type.own);
  };
  if (t.group > 0 && !scaled(t.k) && !scaled(t.v) && r.index_dtype != "int8" &&
      r.index_dtype != "int4") {
    return bad_input(
        "kv_cache_group {}: only int8 and int4 caches of pagefold have scales; leave "
        "it out, or use kv_cache_dtype int8",
        t.group);
  }
  if (t.group == kAutoKvGroup) {
    t.group = rules == EngineRules::pagefold && t.k.own ? kv_group_of(kAutoKvGroup, *t.k.own) : 0;
  }
  if (r.mla == "packed_fp8") {
    t.mla = calc::MlaForm::packed_fp8;
  } else if (r.mla == "expanded") {
    t.mla = calc::MlaForm::expanded;
  } else if (r.mla != "latent") {
    return bad_input("mla: '{}' is none of latent, packed_fp8, expanded", calc::shown(r.mla));
  }
  t.snapshots = r.state_snapshots;
  if (r.index_dtype != "auto") {
    PF_ASSIGN(t.index, calc::parse_kv_type(r.index_dtype, rules));
  }
  PF_ASSIGN(const DType state, parse_dtype(r.state_dtype));
  t.state_bytes = static_cast<int64_t>(dtype_bits(state) / 8);
  PF_TRY(calc::check_types(model, t));
  return t;
}

// What is said to be a part of a sequence is one of the longest, at least.
Status check_parts(const Job& job, int64_t longest) {
  const CalcRequest& r = job.request;
  for (const auto& [name, value] :
       {std::pair{"prompt_tokens", r.prompt_tokens}, {"shared_prefix", r.shared_prefix}}) {
    if (value > longest) {
      return bad_input("{}: {} are more than the {} tokens of {}", name, value, longest,
                       r.lengths.empty() ? "a sequence" : "the longest sequence");
    }
  }
  return ok_status();
}

Status set_lengths(Job& job) {
  const CalcRequest& r = job.request;
  const int64_t context = job.source.model.context;
  const int64_t tokens = r.tokens.value_or(context > 0 ? context : 4096);
  if (r.lengths.empty()) {
    job.batches = {{tokens, r.sequences}};
    job.lengths.assign(static_cast<size_t>(r.sequences), tokens);
    return check_parts(job, tokens);
  }
  job.lengths = r.lengths;
  std::map<int64_t, int64_t, std::greater<>> counts;
  for (const int64_t n : r.lengths) ++counts[n];
  for (const auto& [n, count] : counts) job.batches.push_back({n, count});
  const auto different = static_cast<int64_t>(counts.size());
  if (different * job.source.model.n_layers > kMostLengthsTimesLayers) {
    return bad_input(
        "lengths: {} that differ are too many for {} layers; at most {}, so round them up",
        different, job.source.model.n_layers, kMostLengthsTimesLayers / job.source.model.n_layers);
  }
  return check_parts(job, job.batches.front().tokens);
}

// Ideal bytes, less what a shared prefix saves: every sequence needs its own last window only.
Result<uint64_t> ideal(const Job& job, bool windows) {
  Checked sum;
  for (const calc::LayerGroup& g : job.groups) {
    if (!g.grows()) continue;
    Checked tokens;
    int64_t largest = 0;
    Checked shared;
    for (const CalcBatch& b : job.batches) {
      const int64_t needed = calc::needed_tokens(g, b.tokens, windows);
      tokens += Checked(needed) * b.count;
      const int64_t common =
          std::max<int64_t>(0, std::min(job.request.shared_prefix, b.tokens) - (b.tokens - needed));
      shared += Checked(common) * b.count;
      largest = std::max(largest, common);
    }
    PF_ASSIGN(const uint64_t all, tokens.get("tokens"));
    PF_ASSIGN(const uint64_t twice, shared.get("tokens"));
    sum += Checked(calc::layer_token_bytes(g, job.types)) * g.layers *
           (all - (twice - static_cast<uint64_t>(largest)));
  }
  return sum.get("KV bytes");
}

CalcWorkload workload(const Job& job) {
  return {job.pools,
          job.request.kv,
          job.request.prompt_tokens,
          job.request.shared_prefix,
          job.request.max_num_batched_tokens,
          *job.steps};
}

Result<CalcHeld> held(const Job& job, std::span<const CalcBatch> batches,
                      std::span<const int64_t> lengths) {
  if (job.rules == EngineRules::pagefold) {
    return calc_held(workload(job), batches);
  }
  const calc::RuleOptions o{job.request.block_size, job.request.context_padding,
                            job.request.max_num_batched_tokens, job.request.shared_prefix};
  PF_ASSIGN(const calc::Allocation a,
            job.rules == EngineRules::vllm
                ? calc::vllm_allocation(job.groups, job.types, lengths, o)
                : calc::llama_cpp_allocation(job.groups, job.types, lengths, o));
  return CalcHeld{a.bytes, a.bytes, a.bytes, a.bytes, 0, true};
}

Status set_kv(const Job& job, CalcResult& out) {
  PF_ASSIGN(out.kv.bytes_per_token,
            calc::token_bytes(job.groups, job.types).get("KV bytes a token"));
  PF_ASSIGN(out.kv.ideal_bytes, ideal(job, true));
  PF_ASSIGN(out.kv.full_attention_bytes, ideal(job, false));
  PF_ASSIGN(const CalcHeld h, held(job, job.batches, job.lengths));
  out.kv.allocated_bytes = h.allocated;
  out.kv.steady_bytes = h.steady;
  out.kv.peak_bytes = h.peak;
  out.kv.reserved_bytes = h.reserved;
  out.kv.compactions = h.compactions;
  out.kv.exact = h.exact;
  const Checked states =
      calc::state_bytes(job.groups, job.types) * static_cast<int64_t>(job.lengths.size());
  PF_ASSIGN(out.kv.state_bytes, states.get("recurrent states"));
  for (const calc::LayerGroup& g : job.groups) {
    CalcGroup line;
    line.kind = calc::kind_name(g.kind);
    line.layers = g.layers;
    line.window = g.window;
    line.bytes_per_token = calc::layer_token_bytes(g, job.types) * static_cast<uint64_t>(g.layers);
    line.state_bytes = calc::layer_state_bytes(g, job.types) * static_cast<uint64_t>(g.layers);
    if (g.grows()) {
      line.formula = fmt::format("{} layers x {} = {} bytes a token", g.layers,
                                 calc::layer_token_formula(g, job.types), line.bytes_per_token);
    } else if (g.fixed_state()) {
      line.formula = fmt::format("{} layers x {} = {} bytes a sequence", g.layers,
                                 calc::layer_state_formula(g, job.types), line.state_bytes);
    } else {
      line.formula = fmt::format("{} layers store nothing", g.layers);
    }
    out.groups.push_back(std::move(line));
  }
  return ok_status();
}

Status set_weights(const Job& job, CalcResult& out) {
  const calc::Model& m = job.source.model;
  const CalcRequest& r = job.request;
  if (job.source.weight_bytes && r.weight_format == "auto") {
    out.weights_bytes = job.source.weight_bytes;
    out.weights_exact = true;
    out.weight_format = job.source.weight_format;
  } else {
    std::string format = r.weight_format;
    if (format == "auto") format = r.dtype != "auto" ? r.dtype : m.stored_dtype;
    if (format.empty()) format = "bfloat16";
    PF_ASSIGN(const calc::WeightFormat f, calc::parse_weight_format(format));
    out.weight_format = f.name;
    if (const auto params = calc::parameters(m)) {
      PF_ASSIGN(out.weights_bytes, calc::weight_bytes(m, *params, f));
    }
  }
  const auto ranks = static_cast<uint64_t>(r.tensor_parallel_size);
  if (out.weights_bytes && ranks > 1) {
    out.weights_bytes = (*out.weights_bytes + ranks - 1) / ranks;
    out.weights_exact = false;
  }
  const int64_t rows = std::min(r.max_num_seqs + kExtraLogitRows, r.max_num_batched_tokens);
  out.activations_bytes = calc::step_bytes(m, r.max_num_batched_tokens, rows);
  return ok_status();
}

// Bytes for the cache: what was given, or what weights and activations leave.
std::optional<uint64_t> kv_budget(const Job& job, CalcResult& out) {
  const CalcRequest& r = job.request;
  if (r.kv_cache_memory_bytes) return r.kv_cache_memory_bytes;
  if (!r.memory_bytes) return std::nullopt;
  if (!out.weights_bytes) {
    out.notes.push_back("the weights' size is not known, so all of the memory counts as cache");
  }
  const uint64_t others = out.weights_bytes.value_or(0) + out.activations_bytes.value_or(0);
  if (others >= *r.memory_bytes) {
    out.notes.push_back("weights and activations alone fill the memory");
    return 0;
  }
  return *r.memory_bytes - others;
}

CacheShape shape_of(const CalcPool& pool) {
  return {pool.kv.n_layers, pool.kv.n_kv_heads, pool.kv.block_size, pool.kv.layer_window};
}

// As the start-up line counts: blocks of all tables, or, where windows or states make a token's
// share depend on the length, sequences of `longest` tokens. Nothing evicted.
Result<int64_t> most_tokens(const Job& job, uint64_t budget, uint64_t state, int64_t longest) {
  const bool windows = std::any_of(job.groups.begin(), job.groups.end(),
                                   [](const calc::LayerGroup& g) { return g.windowed(); });
  const calc::RuleOptions o{job.request.block_size, job.request.context_padding,
                            job.request.max_num_batched_tokens, 0};
  const int64_t one = longest;
  calc::Allocation a;
  if (job.rules == EngineRules::vllm) {
    PF_ASSIGN(a, calc::vllm_allocation(job.groups, job.types, {&one, 1}, o));
  } else if (job.rules == EngineRules::llama_cpp) {
    PF_ASSIGN(a, calc::llama_cpp_allocation(job.groups, job.types, {&one, 1}, o));
  } else {
    Checked bytes;
    for (const CalcPool& pool : job.pools) {
      bytes += Checked(shape_of(pool).peak_blocks(longest, job.request.max_num_batched_tokens)) *
               pool.slot_bytes * pool.kv.block_size;
    }
    PF_ASSIGN(a.bytes, bytes.get("KV bytes"));
    a.token_bytes = calc::token_bytes(job.groups, job.types).value();
  }
  const Checked whole = Checked(a.bytes) + Checked(state);
  PF_ASSIGN(const uint64_t sequence, whole.get("a sequence"));
  const double concurrency =
      sequence == 0 ? 0 : static_cast<double>(budget) / static_cast<double>(sequence);
  const bool by_sequence = state > 0 || (windows && job.rules != EngineRules::vllm);
  if (state == 0 && job.rules == EngineRules::pagefold && job.pools.size() == 1) {
    const CalcPool& pool = job.pools.front();
    const uint64_t block = pool.slot_bytes * static_cast<uint64_t>(pool.kv.block_size);
    const auto blocks = static_cast<int64_t>(budget / block);
    const double sequences = static_cast<double>(blocks) / static_cast<double>(a.bytes / block);
    return pool_tokens(shape_of(pool), blocks, sequences, longest);
  }
  if (by_sequence || a.token_bytes == 0) {
    return static_cast<int64_t>(concurrency * static_cast<double>(longest));
  }
  const int64_t step = job.rules == EngineRules::llama_cpp ? o.padding : o.block_size;
  return static_cast<int64_t>(budget / a.token_bytes) / step * step;
}

Status set_fits(const Job& job, uint64_t budget, CalcResult& out) {
  CalcFits fits;
  const int64_t longest = *std::max_element(job.lengths.begin(), job.lengths.end());
  PF_ASSIGN(const uint64_t state, calc::state_bytes(job.groups, job.types).get("states"));
  // The peak of n sequences of `tokens` tokens; false also where it is beyond 2^63.
  bool followed = true;
  const auto fit = [&](int64_t tokens, int64_t n) {
    *job.steps = kTrialSteps;
    const CalcBatch batch{tokens, n};
    std::vector<int64_t> lengths;
    if (job.rules != EngineRules::pagefold) lengths.assign(static_cast<size_t>(n), tokens);
    const auto h = held(job, {&batch, 1}, lengths);
    followed = followed && job.steps->left > 0;
    const Checked all = h.ok() ? Checked(h->peak) + Checked(state) * n : Checked(-1);
    return all.ok() && all.value() <= budget;
  };
  const int64_t context = job.source.model.context;
  constexpr int64_t kLongest = calc_limits::kTokens;
  const int64_t most = context > 0 ? std::min(context, kLongest) : kLongest;
  fits.max_context = calc::most_that_fits(kLongest, [&](int64_t n) { return fit(n, 1); });
  fits.context_is_the_models = fits.max_context > most || fits.max_context == kLongest;
  fits.max_context = std::min(fits.max_context, most);
  const int64_t limit = job.rules == EngineRules::pagefold ? kMostThatFit : 1 << 16;
  fits.max_sequences = calc::most_that_fits(limit, [&](int64_t n) { return fit(longest, n); });
  PF_ASSIGN(fits.max_tokens, most_tokens(job, budget, state, longest));
  out.fits = fits;
  if (!followed) out.notes.push_back("what fits is a lower bound: so many steps are not followed");
  return ok_status();
}

std::string total_formula(const Job& job, const CalcResult& out) {
  std::string text;
  for (const CalcGroup& g : out.groups) text += g.formula + "\n";
  std::string lengths;
  for (const CalcBatch& b : job.batches) {
    lengths += fmt::format("{}{} x {} tokens", lengths.empty() ? "" : " + ", b.count, b.tokens);
    if (lengths.size() > 200) {
      lengths += " + ...";
      break;
    }
  }
  text += fmt::format("needed: {}{}{} = {} bytes\n", lengths,
                      job.request.shared_prefix > 0
                          ? fmt::format(", {} of them shared", job.request.shared_prefix)
                          : "",
                      out.kv.ideal_bytes != out.kv.full_attention_bytes
                          ? ", at most its window in layers that have one"
                          : "",
                      out.kv.ideal_bytes);
  if (job.rules == EngineRules::pagefold) {
    text += fmt::format("allocated: whole blocks of {} slots of every layer and KV head = {} bytes",
                        job.request.block_size, out.kv.allocated_bytes);
    return text;
  }
  const calc::RuleOptions o{job.request.block_size, job.request.context_padding,
                            job.request.max_num_batched_tokens, job.request.shared_prefix};
  const auto a = job.rules == EngineRules::vllm
                     ? calc::vllm_allocation(job.groups, job.types, job.lengths, o)
                     : calc::llama_cpp_allocation(job.groups, job.types, job.lengths, o);
  text += fmt::format("allocated: {} = {} bytes", a.ok() ? a->rule : "", out.kv.allocated_bytes);
  return text;
}

void add_notes(const Job& job, bool followed, CalcResult& out) {
  const calc::Model& m = job.source.model;
  for (const std::string& note : m.notes) out.notes.push_back(note);
  if (m.draft_layers > 0) {
    out.notes.push_back(fmt::format("{} layer(s) of draft heads, {} bytes a token, are {}counted",
                                    m.draft_layers, out.kv.draft_bytes_per_token,
                                    job.request.draft_layers ? "" : "not "));
  }
  const int64_t ranks = job.request.tensor_parallel_size;
  if (ranks > 1) {
    std::string note = fmt::format("figures are of one of {} devices", ranks);
    for (const calc::LayerGroup& g : m.groups) {
      if (g.kind == calc::LayerKind::mla) {
        note += "; the latent is copied to each";
        break;
      }
      if (g.kv_heads > 0 && g.kv_heads % ranks != 0) {
        note += fmt::format("; {} KV heads do not divide by {}: each holds {}", g.kv_heads, ranks,
                            calc::on_one_rank(g, ranks).kv_heads);
        break;
      }
    }
    out.notes.push_back(note);
    if (job.rules == EngineRules::pagefold) {
      out.notes.push_back("pagefold itself runs on one device");
    }
  }
  if (job.rules == EngineRules::pagefold) {
    if (const Status s = calc_without_statistics(workload(job)); !s.ok()) {
      out.notes.push_back(
          "without query statistics of the model (pagefold calibrate) an engine "
          "refuses this: " +
          std::string(s.message()));
    }
  }
  const bool sliding = out.kv.ideal_bytes != out.kv.full_attention_bytes;
  if (sliding && job.rules == EngineRules::vllm) {
    out.notes.push_back("vLLM's uniform pages pay layers with windows as full ones");
  }
  if (!out.kv.exact) {
    out.notes.push_back(followed
                            ? "steady and peak are upper bounds: which slots score best decides"
                            : "steady and peak are upper bounds: so many steps are not followed");
  }
}

}  // namespace

absl::StatusOr<CalcResult> calculate(const CalcRequest& request) {
  PF_ASSIGN(const EngineRules rules, calc::parse_rules(request.engine));
  PF_TRY(check_numbers(request, rules));
  TraceSteps steps;
  Job job{request, rules, {}, {}, {}, {}, {}, {}, &steps};
  PF_ASSIGN(job.source, calc_model(request));
  const calc::Model& m = job.source.model;
  PF_ASSIGN(job.types, cache_types(request, rules, job.source));
  for (const calc::LayerGroup& g : m.groups) {
    job.groups.push_back(calc::on_one_rank(g, request.tensor_parallel_size));
  }
  const calc::LayerGroup draft =
      calc::on_one_rank(calc::draft_group(m), request.tensor_parallel_size);
  if (request.draft_layers && draft.layers > 0) job.groups.push_back(draft);
  job.pools = calc_pools(job.groups, job.types, static_cast<int>(request.block_size));
  PF_TRY(set_lengths(job));

  CalcResult out;
  out.model = m.id;
  out.architecture = m.architecture;
  out.engine = calc::rules_name(rules);
  out.runs_here = m.not_run.empty();
  out.not_run_because = m.not_run;
  out.layers = m.n_layers;
  out.context = m.context;
  out.lengths = job.lengths;
  out.prompt_tokens = request.prompt_tokens;
  out.kv_cache_dtype = job.types.k.name;
  out.kv_cache_dtype_v = job.types.v.name;
  const auto policy = request.kv.find("policy");
  out.policy = policy == request.kv.end() ? "full" : policy->second;
  out.tensor_parallel_size = request.tensor_parallel_size;
  PF_TRY(set_kv(job, out));
  const Checked drafts = Checked(calc::layer_token_bytes(draft, job.types)) * draft.layers;
  PF_ASSIGN(out.kv.draft_bytes_per_token, drafts.get("KV bytes of draft heads"));
  PF_TRY(set_weights(job, out));
  const bool followed = steps.left > 0;
  if (const auto budget = kv_budget(job, out)) PF_TRY(set_fits(job, *budget, out));
  out.formula = total_formula(job, out);
  add_notes(job, followed, out);
  return out;
}

std::vector<std::string> calc_presets() {
  std::vector<std::string> names;
  for (const calc::Model& m : calc::presets()) names.push_back(m.id);
  return names;
}

}  // namespace pagefold
