// A policy decides which slots of a sequence are worth keeping. It is stateless and sees no bytes:
// it says as plain data what must be observed, and turns what was observed into a score a slot.
// What it remembers between steps are per-slot signals, which the sequence owns and which move with
// the slots. One file in policies/, one line in policies.def; see docs/adding-a-policy.md.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/model.h"
#include "kv/signals.h"

namespace pagefold {

// One key of the user syntax that a policy understands: a number in [low, high], or one of `words`
// (comma list; its value is the index of the word).
struct ParamSpec {
  std::string_view key;
  double value = 0;  // default
  double low = 0, high = 0;
  bool integer = true;
  std::string_view words = {};
  std::string_view help = {};
};

// The values a request gave or left at their defaults. Keys are those of the policy's ParamSpecs.
class PolicyParams {
 public:
  void set(std::string_view key, double value);
  double get(std::string_view key) const;  // PF_CHECK: a key of the policy
  int64_t integer(std::string_view key) const { return static_cast<int64_t>(get(key)); }
  bool has(std::string_view key) const;

 private:
  std::vector<std::pair<std::string_view, double>> values_;  // keys live in the ParamSpecs
};

enum class PromptRows : uint8_t { none, last, all };  // last: `window` rows before a compaction
enum class DecodeRows : uint8_t { none, last, all };  // last: the one row before a compaction

// How observed rows accumulate in a slot.
enum class MassKeep : uint8_t {
  sum,           // all observed rows
  window,        // the rows observed before the coming compaction; cleared when a new window begins
  interval_max,  // interval_mass since the last fold; folding keeps the largest mean a row
  history,       // HistoryArrays instead of a sum
};

// What a policy wants recorded. The default asks for nothing, and costs nothing.
struct Needs {
  PromptRows prompt = PromptRows::none;
  DecodeRows decode = DecodeRows::none;
  int window = 0;  // prompt rows for PromptRows::last; rows of the history
  MassForm form = MassForm::none;
  MassKeep keep = MassKeep::sum;
  int prompt_pool = 0;  // odd kernel: max pool of the prompt's mass, once at its end
  KeyScore key_score = KeyScore::none;
  int query_ring = 0;         // last rotated queries kept
  int stats_prompt_rows = 0;  // query sums over the last rows of the prompt and all decode rows
  bool wants_stats() const { return stats_prompt_rows > 0; }
};
// The attention of the last `window` rows of the prompt, and of generated tokens as `decode` says.
inline Needs window_mass(int64_t window, DecodeRows decode, MassForm form, MassKeep keep) {
  Needs n;
  n.prompt = PromptRows::last;
  n.decode = decode;
  n.window = static_cast<int>(window);
  n.form = form;
  n.keep = keep;
  return n;
}

// One keep-set for ...
enum class Scope : uint8_t {
  layer_head,  // each table
  layer,       // the heads of a layer
  head,        // a KV head index across layers
  sequence,    // everything
};
enum class Join : uint8_t { mean, max };  // of the tables' scores of a token, across the scope

// What scoring a table of n slots costs at every compaction.
enum class PolicyCost : uint8_t {
  linear,
  quadratic,  // in the worst case: keys are compared with each other
};

enum class Packing : uint8_t { order, fill, block, off };
enum class RecentRule : uint8_t {
  tokens,  // `recent` of the defaults
  half,    // half the budget
  rest,    // budget - sinks
  window,  // the policy's `window`
};

struct PolicyDefaults {
  int64_t sinks = 4, recent = 32, interval = 128;
  RecentRule recent_rule = RecentRule::tokens;
  bool protect_prompt = false;
  Packing packing = Packing::order;
  std::string_view alloc = "uniform";
  bool once = false;        // compacts at the prompt's end, never evicts a generated token
  bool drops_half = false;  // scissorhands: lets a table run full, then drops `drop` slots
  bool offline = false;     // needs the future: for `eval` alone
  bool evicts = true;       // false: full, and quest
};

// What scores() may look at beside the slots.
struct ScoreInput {
  const PolicyParams& params;
  int layer = 0, head = 0;
  int group = 1;             // query heads of the KV head
  int64_t next_pos = 0;      // position of the next token
  int64_t window_begin = 0;  // prompt rows from here on are the observed window
};

// Query statistics to score keys with, either sums of this request or a calibration.
struct QueryStatsView {
  // [n_layers][n_heads][bands]; divided by rows gives E[q_f] and E|q_f|.
  const double* re = nullptr;
  const double* im = nullptr;
  const double* abs = nullptr;
  double rows = 1;
};
struct KeyQueryInput {
  const PolicyParams& params;
  const KvModel& model;
  QueryStatsView stats;
  int64_t next_pos = 0;
};
// Storage behind a KeyCoefficients; reused between events.
struct KeyCoefficientBuffer {
  int sets = 0;
  std::vector<float> w_re, w_im, e;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;  // one line, for listings
  virtual std::span<const ParamSpec> params() const { return {}; }
  virtual PolicyDefaults defaults() const { return {}; }
  virtual Needs needs(const PolicyParams&) const { return {}; }
  virtual Scope scope(const PolicyParams&) const { return Scope::layer_head; }
  virtual Join join(const PolicyParams&) const { return Join::mean; }
  virtual PolicyCost cost() const { return PolicyCost::linear; }
  // Scores depend on positions alone: tables with equal positions are scored once a scope.
  virtual bool position_only() const { return false; }
  // out[s.n]: higher is kept. Finite. Values of dead slots are ignored.
  virtual void scores(const ScoreInput& in, const SlotSignals& s, float* out) const = 0;
  // For KeyScore::coefficients.
  virtual void key_query(const KeyQueryInput&, KeyCoefficientBuffer&) const {}
};

}  // namespace pagefold
