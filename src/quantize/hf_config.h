// config.json and generation_config.json of a Hugging Face folder, from what is known of a model.
#pragma once

#include "api/loaded_model.h"
#include "base/json.h"
#include "model/config.h"
#include "text/vocab.h"

namespace pagefold {

// dtype: of the unquantised tensors. Refuses what no Transformers class of the family expresses
// (layers of a llama model that slide here and not there, rotary divisors of no known rule).
// The token ids come from the tokenizer; end_tokens: all that end an answer.
Result<Json> hf_config(const ModelConfig& config, DType dtype, const GgufTokenizerSpec& tokenizer,
                       const std::vector<int32_t>& end_tokens);
Json hf_generation_config(const GgufTokenizerSpec& tokenizer,
                          const std::vector<int32_t>& end_tokens);

}  // namespace pagefold
