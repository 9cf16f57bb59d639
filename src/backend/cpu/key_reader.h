// Reads the cached keys of one table strip by strip, and what is computed from them.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "kernels/kernels.h"

namespace pagefold::cpu {

// How the stored keys of a layer differ from the model's (KvShape).
struct StoredKeys {
  bool hadamard = false;
  float scale = 1;
  const float* centre = nullptr;  // [head_dim], taken off; null: nothing was
};

class KeyReader {
 public:
  KeyReader(const kernels::Kernels& k, const kernels::KvLayout& layout, const std::byte* base,
            const StoredKeys& stored)
      : k_(k), layout_(layout), base_(base), stored_(stored) {}

  // out[slots][head_dim]
  void read(const TableView& table, int64_t slots, float* out);
  // a.keys is filled in here; a.out: [group][ldo], slots [0, slots) of each are written.
  void score(const TableView& table, int64_t slots, kernels::StripScoreArgs a);
  // out[n_queries][ldo] = scale * queries . keys; queries: [n_queries][head_dim].
  void dots(const TableView& table, int64_t slots, const float* queries, int n_queries, float scale,
            float* out, int64_t ldo);
  // ScoredKeys of KeyScore::redundancy (kv/signals.h) from one reading of the keys; out.similarity
  // may be null. queries: [window][group][head_dim]. Dead slots are like no other, are no row and
  // get similarity 0; their logits are not special.
  void redundancy(const TableView& table, int64_t slots, const float* queries, int window,
                  int group, float scale, float threshold, const ScoredKeys& out);

 private:
  // The model's keys of the strip that begins at `slot`, float32 [head_dim][16]; slots of it that
  // are not there (past `slots`, in a block that was given back) read as 0. Valid until the next
  // call.
  const float* strip(const TableView& table, int64_t slots, int64_t slot);
  void restore();
  const std::byte* address(const TableView& table, int64_t slot) const;

  const kernels::Kernels& k_;
  const kernels::KvLayout& layout_;
  const std::byte* base_;
  StoredKeys stored_;
  std::vector<float> keys_;     // [head_dim][16]
  std::vector<float> results_;  // rows of one strip
};

}  // namespace pagefold::cpu
