#include "api/loaded_model.h"

namespace pagefold {

void apply_defaults(const GenerationDefaults& defaults, SamplingOptions& out) {
  if (defaults.temperature) out.temperature = *defaults.temperature;
  if (defaults.top_p) out.top_p = *defaults.top_p;
  if (defaults.min_p) out.min_p = *defaults.min_p;
  if (defaults.repetition_penalty) out.repetition_penalty = *defaults.repetition_penalty;
  if (defaults.top_k) out.top_k = *defaults.top_k;
}

}  // namespace pagefold
