// The normalisers, pre-tokenizers and decoders of a tokenizer.json. Types that are not known are
// refused by name.
#pragma once

#include <vector>

#include "text/json_fields.h"
#include "text/pipeline.h"

namespace pagefold {

Status read_normalizers(const JsonNode& node, std::vector<Normalizer>& steps);
Status read_pre_tokenizers(const JsonNode& node, std::vector<PreTokenizer>& steps);

// How a token becomes bytes, and what the start of a text loses.
struct DecodeRules {
  std::vector<std::function<void(std::string&)>> steps;  // applied to one token's text
  bool byte_level = false;
  bool fused = false;
  bool strips_first_space = false;
};
Status read_decoder(const JsonNode& node, DecodeRules& rules);

}  // namespace pagefold
