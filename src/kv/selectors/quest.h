// Quest (Tang et al. 2024, arXiv 2406.10774): which blocks a decode step reads. A page is a block.
// The bound of a page is sum over dims of max(q min, q max): no key of the page has a larger q . k.
#pragma once

#include <cstdint>
#include <vector>

namespace pagefold {

// Running bounds of a page: call for every key appended. page_min, page_max: [head_dim]; the first
// key of a page (`first`) replaces what was there.
void quest_add_key(const float* key, int head_dim, bool first, float* page_min, float* page_max);

// bounds[p] for `pages` pages, the maximum over the group's queries q[group][head_dim].
// page_min, page_max: [pages][head_dim].
void quest_bounds(const float* q, int group, int head_dim, const float* page_min,
                  const float* page_max, int64_t pages, float* bounds);

// The pages to read, ascending: the last one always, and the best of the others, `budget` in all
// (at least 1); ties: the lower page. All of them when there are no more than `budget`.
void quest_select(const float* bounds, int64_t pages, int64_t budget, std::vector<int32_t>& out);

}  // namespace pagefold
