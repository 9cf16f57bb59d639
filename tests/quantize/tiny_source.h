// Tiny models with a tokenizer, as quantize() takes them.
#pragma once

#include <string>
#include <vector>

#include "base/random.h"
#include "model/golden_models.h"
#include "text/byte_map.h"
#include "text/utf8.h"

namespace pagefold::testing {

// The bytes 0 to 127 are tokens; an end token and a merged pair more.
inline void add_byte_tokenizer(GgufWriter& w) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int b = 0; b < 128; ++b) {
    tokens.push_back(utf8_of(byte_to_char(static_cast<unsigned char>(b))));
    types.push_back(1);
  }
  tokens.emplace_back("<|endoftext|>");
  types.push_back(3);
  tokens.emplace_back("ab");
  types.push_back(1);
  w.add("tokenizer.ggml.model", "gpt2");
  w.add("tokenizer.ggml.pre", "gpt-2");
  w.add("tokenizer.ggml.tokens", tokens);
  w.add("tokenizer.ggml.token_type", types);
  w.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  w.add("tokenizer.ggml.bos_token_id", uint32_t{128});
  w.add("tokenizer.ggml.eos_token_id", uint32_t{128});
  w.add("tokenizer.chat_template", "{{ messages[0].content }}");
}

// uneven: the weights are none that 4 bits hold without loss, as those of tiny_tensors are.
inline void write_gguf_with_text(const std::filesystem::path& path, const Json& config,
                                 bool uneven = false) {
  const auto parsed = config_from_hf(config, "config.json");
  if (!parsed.ok()) throw std::runtime_error(message_of(parsed.status()));
  GgufWriter w = gguf_metadata(config, parsed->shape.layer_window);
  add_byte_tokenizer(w);
  std::vector<TinyTensor> tensors = tiny_tensors(config);
  for (TinyTensor& t : tensors) {
    for (size_t i = 0; uneven && i < t.values.size(); ++i)
      t.values[i] *= 1 + 0.3f * std::sin(static_cast<float>(i));
  }
  add_gguf_tensors(w, config, std::move(tensors), TensorType::F32);
  w.write_to(path);
}

// Words of a few letters, so that the same tokens come again.
inline std::string tiny_text(int words) {
  std::string out;
  for (int i = 0; i < words; ++i) {
    for (int c = 0; c < 1 + i % 5; ++c)
      out += static_cast<char>('a' + splitmix(7, static_cast<uint64_t>(i * 8 + c)) % 26);
    out += i % 11 == 10 ? '\n' : ' ';
  }
  return out;
}

}  // namespace pagefold::testing
