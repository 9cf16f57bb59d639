#include "model/config.h"

#include <cmath>

namespace pagefold {
namespace {

Status in_range(std::string_view where, std::string_view field, int64_t value, int64_t low,
                int64_t high) {
  if (value >= low && value <= high) return ok_status();
  return bad_data("{}: {} is {}, expected {} to {}", where, field, value, low, high);
}

Status check_rope(const RopeConfig& r, std::string_view where) {
  const auto positive = [&](std::string_view field, double v) -> Status {
    if (std::isfinite(v) && v > 0) return ok_status();
    return bad_data("{}: rope {} is {}, expected a positive number", where, field, v);
  };
  // Far beyond any use; inside, no frequency overflows.
  const auto sane = [&](std::string_view field, double v) -> Status {
    if (v >= 1e-9 && v <= 1e18) return ok_status();
    return bad_data("{}: rope {} is {}, expected a positive number of sane size", where, field, v);
  };
  PF_TRY(sane("theta", r.theta));
  PF_TRY(sane("factor", r.factor));
  if (r.kind == RopeKind::llama3 || r.kind == RopeKind::yarn) {
    PF_TRY(positive("original_max_position_embeddings", r.original_context));
  }
  if (r.kind == RopeKind::llama3) {
    PF_TRY(positive("low_freq_factor", r.low_freq_factor));
    if (!(r.high_freq_factor > r.low_freq_factor)) {
      return bad_data("{}: rope high_freq_factor {} must exceed low_freq_factor {}", where,
                      r.high_freq_factor, r.low_freq_factor);
    }
  }
  if (r.kind == RopeKind::yarn) {
    if (r.theta <= 1) return bad_data("{}: rope theta {} must exceed 1 for YaRN", where, r.theta);
    PF_TRY(positive("beta_fast", r.beta_fast));
    PF_TRY(positive("beta_slow", r.beta_slow));
    if (r.attention_factor != 0) PF_TRY(positive("attention_factor", r.attention_factor));
  }
  for (const float d : r.divisors) PF_TRY(positive("frequency divisor", d));
  return ok_status();
}

}  // namespace

Status validate_config(ModelConfig& c, std::string_view where) {
  ModelShape& s = c.shape;
  PF_TRY(in_range(where, "number of layers", s.n_layers, 1, 1024));
  PF_TRY(in_range(where, "number of heads", s.n_heads, 1, 1024));
  PF_TRY(in_range(where, "number of KV heads", s.n_kv_heads, 1, s.n_heads));
  PF_TRY(in_range(where, "hidden size", s.hidden, 1, 1 << 20));
  PF_TRY(in_range(where, "feed-forward size", c.ffn, 1, 1 << 22));
  PF_TRY(in_range(where, "vocabulary size", s.vocab_size, 1, 1 << 24));
  PF_TRY(in_range(where, "context length", s.context_length, 1, int64_t{1} << 40));
  if (s.n_heads % s.n_kv_heads != 0) {
    return bad_data("{}: {} heads are no multiple of {} KV heads", where, s.n_heads, s.n_kv_heads);
  }
  if (s.head_dim == 0) {
    if (s.hidden % s.n_heads != 0) {
      return bad_data("{}: hidden size {} is no multiple of {} heads and no head_dim is given",
                      where, s.hidden, s.n_heads);
    }
    s.head_dim = static_cast<int>(s.hidden / s.n_heads);
  }
  PF_TRY(in_range(where, "head_dim", s.head_dim, 8, 512));
  if (s.head_dim % 8 != 0)
    return unsupported("{}: head_dim {} is no multiple of 8", where, s.head_dim);
  if (c.rope.rot == 0) c.rope.rot = s.head_dim;
  PF_TRY(in_range(where, "rotated dims", c.rope.rot, 2, s.head_dim));
  if (c.rope.rot % 2 != 0)
    return bad_data("{}: an odd number of rotated dims ({})", where, c.rope.rot);
  if (!c.rope.divisors.empty() && c.rope.divisors.size() != static_cast<size_t>(c.rope.rot / 2)) {
    return bad_data("{}: {} rope frequency divisors for {} rotated dims", where,
                    c.rope.divisors.size(), c.rope.rot);
  }
  if (!std::isfinite(c.rms_eps) || c.rms_eps < 0 || c.rms_eps > 1) {
    return bad_data("{}: RMS norm epsilon is {}", where, c.rms_eps);
  }
  if (s.layer_window.empty()) s.layer_window.assign(static_cast<size_t>(s.n_layers), 0);
  for (const int64_t w : s.layer_window)
    PF_TRY(in_range(where, "sliding window", w, 0, int64_t{1} << 40));
  return check_rope(c.rope, where);
}

}  // namespace pagefold
