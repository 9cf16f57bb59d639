// The recorded lines and ids of tests/text/data (written by tools/record_tokenizers.py).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace pagefold::testing {

inline std::string read_data(const std::string& name) {
  std::ifstream in(PAGEFOLD_SOURCE_DIR "/tests/text/data/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

inline std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// The 2,000 lines, unescaped.
inline const std::vector<std::string>& recorded_lines() {
  static const std::vector<std::string> lines = [] {
    std::vector<std::string> all = split_lines(read_data("lines.txt"));
    for (std::string& line : all) {
      std::string out;
      for (size_t i = 0; i < line.size(); ++i) {
        if (line[i] != '\\') {
          out += line[i];
          continue;
        }
        const char c = line[++i];
        out += c == 'n' ? '\n' : c == 'r' ? '\r' : c == '0' ? '\0' : c;
      }
      line = out;
    }
    return all;
  }();
  return lines;
}

inline std::string ids_to_text(const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) {
    if (!out.empty()) out += ',';
    out += std::to_string(id);
  }
  return out;
}

inline uint32_t hash_ids(const std::vector<int32_t>& ids) {
  uint32_t hash = 0x811c9dc5u;
  for (const int32_t id : ids) {
    for (int i = 0; i < 4; ++i) {
      hash = (hash ^ ((static_cast<uint32_t>(id) >> (8 * i)) & 0xffu)) * 0x01000193u;
    }
  }
  return hash;
}

// Compares every line with `name`.ids.
inline void expect_recorded(const Tokenizer& tokenizer, const std::string& name, bool parse_special,
                            bool add_special = false) {
  const std::vector<std::string> records = split_lines(read_data(name + ".ids"));
  const std::vector<std::string>& lines = recorded_lines();
  ASSERT_EQ(records.size(), 2000u);
  ASSERT_EQ(lines.size(), records.size());
  int wrong = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<int32_t> ids = tokenizer.encode(lines[i], add_special, parse_special);
    const bool same = hash_ids(ids) >> 8 == std::stoul(records[i].substr(0, 6), nullptr, 16) &&
                      (records[i].size() < 7 || records[i].substr(7) == ids_to_text(ids));
    if (same) continue;
    if (++wrong > 10) continue;
    std::string pieces;
    for (const int32_t id : ids) pieces += "|" + tokenizer.piece(id);
    ADD_FAILURE() << name << " line " << i << " \"" << lines[i] << "\" gives " << ids_to_text(ids)
                  << pieces << "; recorded " << records[i];
  }
  EXPECT_EQ(wrong, 0) << "lines with other ids, of " << lines.size();
}

}  // namespace pagefold::testing
