#include "calc/weights.h"

#include <algorithm>
#include <cmath>

#include "calc/checked.h"
#include "calc/words.h"

namespace pagefold::calc {
namespace {

// Groups of 128 with a float16 scale and a 4-bit zero point (AWQ, GPTQ); of 64 with a float32 scale
// (nf4, not nested); the block types of ggml.
constexpr WeightFormat kFormats[] = {
    {"float32", 32, true}, {"bfloat16", 16, true},  {"float16", 16, true},    {"fp8", 8, false},
    {"int8", 8, false},    {"awq", 4.15625, false}, {"gptq", 4.15625, false}, {"nf4", 4.5, false},
    {"q8_0", 8.5, true},   {"q6_k", 6.5625, true},  {"q5_1", 6, true},        {"q5_0", 5.5, true},
    {"q5_k", 5.5, true},   {"q4_1", 5, true},       {"q4_0", 4.5, true},      {"q4_k", 4.5, true},
    {"iq4_nl", 4.5, true}, {"mxfp4", 4.25, true},   {"q3_k", 3.4375, true},   {"q2_k", 2.625, true},
};

// The one attention shape of a model with keys and values in all layers that have any.
const LayerGroup* attention_shape(const Model& m) {
  const LayerGroup* found = nullptr;
  for (const LayerGroup& g : m.groups) {
    if (g.kind != LayerKind::full && g.kind != LayerKind::sliding) return nullptr;
    if (found != nullptr &&
        (g.kv_heads != found->kv_heads || g.k_dim != found->k_dim || g.v_dim != found->v_dim)) {
      return nullptr;
    }
    found = &g;
  }
  return found;
}

}  // namespace

Result<WeightFormat> parse_weight_format(std::string_view word) {
  std::string name = lower(word.substr(0, 40));
  if (name == "half") name = "float16";
  if (name == "float") name = "float32";
  if (name == "bitsandbytes") name = "nf4";
  if (name == "none") name = "bfloat16";
  std::string known;
  for (const WeightFormat& f : kFormats) {
    if (f.name == name) return f;
    list(known, f.name);
  }
  return bad_input("unknown weight format '{}': use {}", shown(word), known);
}

int64_t table_parameters(const Model& m) {
  return m.vocab * m.hidden * (m.tied && m.tied_known ? 1 : 2);
}

std::optional<int64_t> parameters(const Model& m) {
  if (m.params > 0) return m.params;
  const bool qwen2 = m.architecture == "qwen2", qwen3 = m.architecture == "qwen3";
  const bool usual = m.architecture == "llama" || m.architecture == "mistral" ||
                     m.architecture == "phi3" || qwen2 || qwen3;
  const LayerGroup* g = attention_shape(m);
  if (!usual || m.experts > 0 || g == nullptr || !m.tied_known || m.hidden == 0 || m.ffn == 0 ||
      m.vocab == 0 || m.n_heads == 0) {
    return std::nullopt;
  }
  const Checked q = Checked(m.n_heads) * g->k_dim, kv = Checked(g->kv_heads) * g->k_dim;
  Checked layer =
      (q + kv + kv + q) * m.hidden + Checked(m.hidden) * m.ffn * 3 + Checked(m.hidden) * 2;
  if (qwen2) layer += q + kv + kv;
  if (qwen3) layer += Checked(2 * g->k_dim);
  const Checked all =
      layer * m.n_layers + Checked(m.vocab) * m.hidden * (m.tied ? 1 : 2) + Checked(m.hidden);
  if (!all.ok()) return std::nullopt;
  return static_cast<int64_t>(all.value());
}

Result<uint64_t> weight_bytes(const Model& m, int64_t params, const WeightFormat& format) {
  const Checked tables = Checked(m.vocab) * m.hidden * 2;
  PF_TRY(tables.get("the embedding").status());
  const int64_t apart = format.everything ? 0 : std::min(params, table_parameters(m));
  const double bytes =
      static_cast<double>(params - apart) * format.bits / 8 + static_cast<double>(apart) * 2;
  if (!(bytes < 9.2e18)) return bad_input("weights: beyond 2^63 bytes; no machine holds that");
  return static_cast<uint64_t>(std::llround(bytes));
}

std::optional<uint64_t> step_bytes(const Model& m, int64_t rows, int64_t logit_rows) {
  const LayerGroup* g = attention_shape(m);
  if (g == nullptr || m.hidden == 0 || m.ffn == 0 || m.vocab == 0 || m.n_heads == 0) {
    return std::nullopt;
  }
  const Checked q = Checked(m.n_heads) * g->k_dim;
  const Checked values =
      Checked(m.hidden) + q + Checked(2 * g->kv_heads) * g->k_dim + q + Checked(m.ffn) * 2;
  const Checked widest =
      Checked(std::max({m.hidden, m.ffn, static_cast<int64_t>(q.ok() ? q.value() : 0)}));
  // float32, bfloat16, int8 with a float32 scale per 32 and an int32 sum per 16: 7.375 bytes.
  const Checked inputs = widest * std::max(rows, logit_rows) * 59;
  const Checked rest = values * rows * 4 + Checked(m.vocab) * logit_rows * 4;
  if (!inputs.ok() || !rest.ok()) return std::nullopt;
  return rest.value() + inputs.value() / 8;
}

}  // namespace pagefold::calc
