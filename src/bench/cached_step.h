// One step of a model at a given depth, without computing the prompt first: the cache holds zeros,
// which cost what any other values cost.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "api/loaded_model.h"
#include "base/result.h"

namespace pagefold::bench {

struct StepSpec {
  int64_t len = 8192;  // tokens that each sequence has cached
  int batch = 1;       // sequences
  int rows = 1;        // of each sequence, computed by a step
  // Blocks of each table in turn, as the engine hands them out while it reads a prompt in chunks of
  // 512 tokens; 1 is what a long answer leaves.
  int64_t run = 32;
  bool huge_pages = false;  // the cache in pages of 2 MiB
};

class CachedStep {
 public:
  // The model outlives the step, whose cache becomes the model's.
  static Result<std::unique_ptr<CachedStep>> make(LoadedModel& model, const StepSpec& spec);
  double run_s();  // seconds of one step
  int64_t tokens() const { return int64_t{spec_.batch} * spec_.rows; }
  double cache_bytes() const { return cache_bytes_; }

 private:
  CachedStep(LoadedModel& model, const StepSpec& spec) : model_(model), spec_(spec) {}
  Status prepare();

  LoadedModel& model_;
  const StepSpec spec_;
  std::vector<std::vector<BlockId>> blocks_;
  std::vector<TableView> tables_;
  std::vector<SeqRows> seqs_;
  std::vector<int32_t> tokens_, logit_rows_;
  std::vector<int64_t> positions_;
  std::vector<float> logits_;
  double cache_bytes_ = 0;
};

}  // namespace pagefold::bench
