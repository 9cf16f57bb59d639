// Words of the user syntax, checked. `where` names the key in messages: "kv.budget".
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/plan.h"
#include "kv/policy.h"

namespace pagefold {

// Cut to a length that is safe to print.
std::string_view shown(std::string_view word);
std::string joined(std::span<const std::string_view> words);

Result<int64_t> parse_count(std::string_view where, std::string_view word, int64_t low,
                            int64_t high);
Result<bool> parse_switch(std::string_view where, std::string_view word);
// Index of the word in a comma list.
Result<int> parse_choice(std::string_view where, std::string_view word, std::string_view words);
Result<double> parse_param(std::string_view where, std::string_view word, const ParamSpec& spec);
// "2048" or "25%": one of the two is set.
Status parse_budget(std::string_view word, int64_t& tokens, double& share);
// "0:32,100:120": ascending, disjoint [begin, end). n_prompt 0: unknown.
Result<std::vector<KeepSpan>> parse_spans(std::string_view word, int64_t n_prompt);

}  // namespace pagefold
