// Just enough of GGUF to read a tokenizer, so that these tests need the text module alone.
#pragma once

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "text/vocab.h"

namespace pagefold::testing {

class GgufVocabReader {
 public:
  explicit GgufVocabReader(const std::string& path) : in_(path, std::ios::binary) {}

  GgufTokenizerSpec read() {
    GgufTokenizerSpec spec;
    read_as<uint64_t>();  // magic, version
    read_as<uint64_t>();  // tensors
    const auto keys = read_as<uint64_t>();
    for (uint64_t i = 0; i < keys && in_.good(); ++i) {
      const std::string key = read_string();
      read_value(key, read_as<uint32_t>(), spec);
    }
    return spec;
  }

 private:
  template <class T>
  T read_as() {
    T value{};
    in_.read(reinterpret_cast<char*>(&value), sizeof(T));
    return value;
  }
  std::string read_string() {
    std::string text(read_as<uint64_t>(), '\0');
    in_.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  }
  static int scalar_bytes(uint32_t type) {
    constexpr int kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kBytes[type];
  }
  void read_value(const std::string& key, uint32_t type, GgufTokenizerSpec& spec) {
    const std::string name = key.starts_with("tokenizer.ggml.") ? key.substr(15) : "";
    if (type == 8) {
      const std::string text = read_string();
      if (name == "model") spec.model = text;
      if (name == "pre") spec.pre = text;
    } else if (type == 9) {
      const auto element = read_as<uint32_t>();
      const auto count = read_as<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) read_element(name, element, i, spec);
    } else {
      int64_t bits = 0;
      in_.read(reinterpret_cast<char*>(&bits), scalar_bytes(type));
      if (name == "bos_token_id") spec.bos = static_cast<int32_t>(bits);
      if (name == "eos_token_id") spec.eos = static_cast<int32_t>(bits);
      if (name == "add_bos_token") spec.add_bos = bits != 0, spec.has_add_bos = true;
      if (name == "add_space_prefix") spec.add_space_prefix = bits != 0;
    }
  }
  void read_element(const std::string& name, uint32_t element, uint64_t i,
                    GgufTokenizerSpec& spec) {
    if (element == 8) {
      std::string text = read_string();
      if (name == "merges") spec.merges.push_back(text);
      if (name == "tokens") at(spec, i).piece = text;
      return;
    }
    int32_t bits = 0;
    in_.read(reinterpret_cast<char*>(&bits), scalar_bytes(element));
    if (name == "scores") std::memcpy(&at(spec, i).score, &bits, 4);
    if (name == "token_type") {
      constexpr TokenKind kKinds[] = {
          TokenKind::normal,       TokenKind::normal, TokenKind::unknown, TokenKind::control,
          TokenKind::user_defined, TokenKind::unused, TokenKind::byte};
      at(spec, i).kind = kKinds[bits];
    }
  }
  static VocabEntry& at(GgufTokenizerSpec& spec, uint64_t i) {
    if (spec.tokens.size() <= i) spec.tokens.resize(i + 1);
    return spec.tokens[i];
  }
  std::ifstream in_;
};

// The default model's tokenizer; nothing when PAGEFOLD_TEST_MODEL does not name a file.
inline std::optional<GgufTokenizerSpec> default_model_spec() {
  const char* path = std::getenv("PAGEFOLD_TEST_MODEL");
  if (path == nullptr || *path == '\0') return std::nullopt;
  return GgufVocabReader(path).read();
}

}  // namespace pagefold::testing
