// The resolved compression wishes of one request: what parse_kv_options makes of the words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kv/budget.h"
#include "kv/calibration.h"
#include "kv/policy.h"

namespace pagefold {

enum class Release : uint8_t { os, pool };

// Positions [begin, end) that no policy may evict; on top of the budget.
struct KeepSpan {
  int64_t begin = 0, end = 0;
};

struct KvPlan {
  const Policy* policy = nullptr;
  const BudgetRule* alloc = nullptr;
  std::string name;  // as the user wrote it: a preset keeps its name
  PolicyParams params;
  PolicyDefaults defaults;  // of the policy

  int64_t budget = 2048;    // slots a table, protected ones included
  double budget_share = 0;  // > 0: of the tokens computed so far, instead of `budget`
  int64_t interval = 128;   // tokens between compactions
  int64_t sinks = 4;
  RecentRule recent_rule = RecentRule::tokens;
  int64_t recent = 32;
  bool protect_prompt = false;
  Packing packing = Packing::order;
  Release release = Release::os;
  bool prefill_evict = false;
  int64_t prefill_chunk = 512;
  bool elastic = false;
  bool window_before_suffix = true;  // observed prompt rows end before the template's suffix
  BudgetParams alloc_params;
  std::vector<KeepSpan> keep;  // ascending, disjoint, within the prompt
  int64_t drop = 0;            // scissorhands: slots dropped at once; 0: half the budget

  // triattention: "auto", "self" or a registered name; the statistics, null for self.
  std::string calibration = "auto";
  std::shared_ptr<const CalibrationStats> stats;

  // streaming with reindex=on: positions of slots are numbered anew for a second query (backend).
  bool reindex = false;
  // quest: slots read a table, in whole blocks, and layers read in full; 0 slots: not sparse.
  int64_t quest_tokens = 0;
  bool quest_reads_budget = false;  // they are the budget, which may be a share
  int quest_exempt_layers = 2;

  // Words of the request that do nothing under its policy (option_keys.h).
  std::vector<std::string_view> unused;

  bool evicts() const { return policy != nullptr && defaults.evicts; }
  // Slots a table at an event, with next_pos tokens computed.
  int64_t budget_at(int64_t next_pos) const;
  // quest: slots a table that the token at next_pos reads, before they are cut to whole blocks.
  int64_t quest_tokens_at(int64_t next_pos) const;
  int64_t sinks_at(int64_t next_pos, int64_t stats_rows) const;  // hard prefix of self calibration
  int64_t recent_at(int64_t next_pos) const;
  int64_t protected_at(int64_t next_pos, int64_t stats_rows) const {
    return sinks_at(next_pos, stats_rows) + recent_at(next_pos);
  }
  bool pinned(int64_t position, int64_t n_prompt) const;
  // Pinned positions among the first `computed` of a sequence.
  int64_t pinned_count(int64_t computed, int64_t n_prompt) const;
};

}  // namespace pagefold
