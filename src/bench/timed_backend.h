// A backend that passes every call on and keeps the time and the bytes of each operation of a step.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "bench/made_matrices.h"

namespace pagefold::bench {

enum class Stage : uint8_t { embed, norm_linear, attention, linear_add, glu_linear_add, logits };
inline constexpr size_t kStages = 6;
std::string_view stage_name(size_t stage);

struct StageTime {
  double seconds = 0;
  double bytes = 0;  // weights and cached keys and values that must be read
};
using StageTimes = std::array<StageTime, kStages>;

// Makes the backend a timed one. Times are added to `times`, which outlives it; outputs and inputs
// of each matrix that is loaded to `matrices`, each shape once.
std::unique_ptr<Backend> time_backend(std::unique_ptr<Backend> inner, StageTimes& times,
                                      std::vector<MatrixDims>& matrices);

}  // namespace pagefold::bench
