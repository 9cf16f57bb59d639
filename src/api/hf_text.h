// What a Hugging Face folder says about text: tokenizer_config.json, generation_config.json,
// chat_template.jinja.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "api/loaded_model.h"
#include "base/json.h"

namespace pagefold {

struct HfText {
  std::string tokenizer_json, tokenizer_config;  // texts; config may be ""
  std::string chat_template;                     // "" when there is none
  std::vector<int32_t>
      eos_token_ids;  // from generation_config.json, else config.json; may be empty
  GenerationDefaults defaults;
};
Result<HfText> read_hf_text(const std::filesystem::path& folder);

}  // namespace pagefold
