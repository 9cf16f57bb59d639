// A tokenizer for the tiny models of the tests.
#pragma once

#include <string>

#include "base/json.h"

namespace pagefold::testing {

// A byte-level vocabulary of `n` letters.
inline std::string tiny_tokenizer_json(int n) {
  Json vocab = Json::object();
  for (int i = 0; i < n; ++i)
    vocab[std::string(1, static_cast<char>('!' + i % 90)) + (i < 90 ? "" : std::to_string(i))] = i;
  return dump_json({{"version", "1.0"},
                    {"added_tokens", Json::array()},
                    {"normalizer", nullptr},
                    {"pre_tokenizer",
                     {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", true}}},
                    {"post_processor", nullptr},
                    {"decoder", {{"type", "ByteLevel"}}},
                    {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}});
}

}  // namespace pagefold::testing
