#include "bench/cached_step.h"

#include <algorithm>
#include <numeric>

#include "bench/bandwidth.h"

namespace pagefold::bench {
namespace {

constexpr int kBlockSize = 16;

}  // namespace

Result<std::unique_ptr<CachedStep>> CachedStep::make(LoadedModel& model, const StepSpec& spec) {
  std::unique_ptr<CachedStep> step(new CachedStep(model, spec));
  PF_TRY(step->prepare());
  return step;
}

double CachedStep::run_s() {
  const double start = seconds();
  model_.network->forward({tokens_, positions_, seqs_, logit_rows_}, logits_.data());
  return seconds() - start;
}

Status CachedStep::prepare() {
  const ModelShape& s = model_.network->shape();
  const int n_tables = s.n_layers * s.n_kv_heads;
  const int64_t a_table = (spec_.len + spec_.rows + kBlockSize - 1) / kBlockSize;
  const int64_t n_blocks = a_table * n_tables * spec_.batch;
  if (n_blocks > int64_t{kNoBlock} - 1) return bad_input("{} blocks are too many", n_blocks);
  KvShape kv = kv_shape(s, model_.kv, kBlockSize, static_cast<uint32_t>(n_blocks));
  kv.huge_pages = spec_.huge_pages;
  const int rows = spec_.batch * spec_.rows;
  PF_TRY(model_.network->init(kv, {rows, spec_.batch, spec_.batch}));
  std::vector<BlockId> all(kv.n_blocks);
  std::iota(all.begin(), all.end(), 0u);
  PF_TRY(model_.network->blocks_taken(all));
  const int64_t all_tables = int64_t{n_tables} * spec_.batch;
  blocks_.resize(static_cast<size_t>(all_tables));
  BlockId next = 0;
  for (int64_t first = 0; first < a_table; first += spec_.run)
    for (auto& table : blocks_)
      for (int64_t j = first; j < std::min(first + spec_.run, a_table); ++j)
        table.push_back(next++);
  for (const auto& table : blocks_) tables_.push_back({table.data(), spec_.len, 0, nullptr});
  for (int b = 0; b < spec_.batch; ++b) {
    seqs_.push_back({b * spec_.rows, spec_.rows, tables_.data() + int64_t{b} * n_tables, nullptr});
    logit_rows_.push_back(b * spec_.rows + spec_.rows - 1);
    for (int r = 0; r < spec_.rows; ++r) {
      tokens_.push_back(static_cast<int32_t>((100 + (b * 31 + r * 7) % 1000) % s.vocab_size));
      positions_.push_back(spec_.len + r);
    }
  }
  logits_.resize(static_cast<size_t>(spec_.batch * s.vocab_size));
  cache_bytes_ = static_cast<double>(kv.block_bytes()) * static_cast<double>(kv.n_blocks);
  return ok_status();
}

}  // namespace pagefold::bench
