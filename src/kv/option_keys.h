// The keys of `kv` that every policy understands, as one table: what reads a key, what lists the
// known ones and what says which of them do nothing all walk over it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/plan.h"
#include "kv/registry.h"

namespace pagefold {

struct KvKeyWord {
  std::string where;  // "kv.budget"
  std::string_view word;
  int64_t n_prompt = 0;  // 0: unknown
  const KvLimits& limits;
};

struct KvKey {
  std::string_view name;
  // Sets its part of a plan; null: `policy` and `select`, which are read before and after the rest,
  // and keys of requests alone.
  Status (*set)(const KvKeyWord& in, KvPlan& plan) = nullptr;
  // False: with this plan the key changes nothing, and what it asks for does not hold either. Null:
  // never so.
  bool (*used)(const KvPlan& plan) = nullptr;
  bool inherited = false;   // a server's word holds for a request with another policy too
  bool of_request = false;  // the engine takes it out of a request before a plan is made
};

std::span<const KvKey> kv_keys();
const KvKey* find_kv_key(std::string_view name);  // null: unknown

// Those of kv_keys(), then the policy's own: what a message lists.
std::vector<std::string_view> known_kv_keys(const Policy& policy, const PolicyParams& params);
// Words of `given` that do nothing under the plan, in the order of kv_keys().
std::vector<std::string_view> unused_kv_words(const KvWords& given, const KvPlan& plan);

// The ways of packing that are permitted: "order,fill,block".
std::string_view packing_words(bool allow_off);
// Query statistics are a matter of this policy: it understands `calibration`.
bool uses_calibration(const Policy& policy, const PolicyParams& params);
// What a budget means to it: slots kept, or slots read.
bool uses_budget(const Policy& policy);

}  // namespace pagefold
