// How the parts of a tile (slot_source.h) are added up: spans of 8 parts first, whose parts are
// merged in ascending order, then the spans in ascending order. Spans are counted from part 0, so
// the sum does not depend on who computed what. Where several threads share a tile, each hands over
// a span's sum in place of 8 parts: a partial that lies in another core's cache costs about as much
// as a tenth of the part itself.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/kernels.h"

namespace pagefold::cpu {

constexpr int kSpanParts = 8;

// Nothing merged yet.
inline void clear(const kernels::AttentionPartial& p, int queries, int head_dim) {
  std::fill_n(p.m, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(p.l, queries, 0.0f);
  std::fill_n(p.o, static_cast<int64_t>(queries) * head_dim, 0.0f);
}

class PartSum {
 public:
  // The parts [begin, end) will be added, in that order, to `total`; `span`: room for one span.
  PartSum(const kernels::Kernels& k, int queries, int head_dim, int begin, int end,
          const kernels::AttentionPartial& span, const kernels::AttentionPartial& total)
      : k_(k),
        queries_(queries),
        dim_(head_dim),
        end_(end),
        one_span_(begin / kSpanParts == (end - 1) / kSpanParts),
        span_(span),
        total_(total) {
    clear(total_, queries_, dim_);
    if (!one_span_) clear(span_, queries_, dim_);
  }

  void add(int part, const kernels::AttentionPartial& from) {
    // Merged with nothing, a span is itself: one span alone needs no room of its own.
    k_.attention_merge(queries_, dim_, from, one_span_ ? total_ : span_);
    if (one_span_ || ((part + 1) % kSpanParts != 0 && part + 1 != end_)) return;
    k_.attention_merge(queries_, dim_, span_, total_);
    if (part + 1 != end_) clear(span_, queries_, dim_);
  }

 private:
  const kernels::Kernels& k_;
  const int queries_, dim_, end_;
  const bool one_span_;
  const kernels::AttentionPartial span_, total_;
};

}  // namespace pagefold::cpu
