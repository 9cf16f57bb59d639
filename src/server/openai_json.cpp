#include "server/openai_json.h"

#include "api/kv_usage_json.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <set>

#include "base/json.h"

namespace pagefold {
namespace {

// Code points: bytes that do not continue a character.
int64_t characters(std::string_view text) {
  int64_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

void append_bytes(std::string& out, std::string_view bytes) {
  out += '[';
  for (size_t i = 0; i < bytes.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i ? "," : "",
                   static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  }
  out += ']';
}

// "token":...,"logprob":...,"bytes":[...]
void append_scored_token(std::string& out, const TokenNames& names, TokenLogprob t) {
  out += "\"token\":";
  append_json_string(out, names.name(t.token));
  out += ",\"logprob\":";
  append_logprob(out, t.logprob);
  out += ",\"bytes\":";
  append_bytes(out, names.bytes(t.token));
}

// The best ones, and the chosen one where it is not among them. A name is written once: different
// tokens may look the same (halves of characters), and keys of an object must differ.
void append_top_map(std::string& out, const TokenNames& names,
                    const std::vector<TokenLogprob>& scores) {
  std::set<std::string> seen;
  out += '{';
  const auto add = [&](TokenLogprob t) {
    std::string name;
    append_json_string(name, names.name(t.token));
    if (!seen.insert(name).second) return;
    if (out.back() != '{') out += ',';
    out += name;
    out += ':';
    append_logprob(out, t.logprob);
  };
  for (size_t i = 1; i < scores.size(); ++i) add(scores[i]);
  add(scores[0]);
  out += '}';
}

}  // namespace

void append_logprob(std::string& out, float logprob) {
  if (!std::isfinite(logprob)) {
    out += "-9999.0";
  } else {
    fmt::format_to(std::back_inserter(out), "{}", logprob);
  }
}

std::string TokenNames::bytes(int32_t token) const { return tokenizer_.token_bytes(token, false); }

std::string TokenNames::name(int32_t token) const {
  return as_ids_ ? fmt::format("token_id:{}", token) : bytes(token);
}

void append_chat_logprobs(std::string& out, const TokenNames& names,
                          std::span<const int32_t> tokens,
                          std::span<const std::vector<TokenLogprob>> scores) {
  out += "{\"content\":[";
  for (size_t i = 0; i < scores.size(); ++i) {
    if (i) out += ',';
    out += '{';
    const TokenLogprob chosen =
        scores[i].empty() ? TokenLogprob{tokens[i], -INFINITY} : scores[i].front();
    append_scored_token(out, names, chosen);
    out += ",\"top_logprobs\":[";
    for (size_t k = 1; k < scores[i].size(); ++k) {
      out += k > 1 ? ",{" : "{";
      append_scored_token(out, names, scores[i][k]);
      out += '}';
    }
    out += "]}";
  }
  out += "]}";
}

void append_completion_logprobs(std::string& out, const TokenNames& names,
                                std::span<const int32_t> tokens,
                                std::span<const std::vector<TokenLogprob>> scores,
                                int64_t& offset) {
  std::string offsets, values, words, tops;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view comma = i ? "," : "";
    fmt::format_to(std::back_inserter(offsets), "{}{}", comma, offset);
    offset += characters(names.bytes(tokens[i]));
    words += comma;
    append_json_string(words, names.name(tokens[i]));
    values += comma;
    tops += comma;
    if (scores[i].empty()) {
      values += "null";
      tops += "null";
    } else {
      append_logprob(values, scores[i].front().logprob);
      append_top_map(tops, names, scores[i]);
    }
  }
  fmt::format_to(
      std::back_inserter(out),
      R"({{"text_offset":[{}],"token_logprobs":[{}],"tokens":[{}],"top_logprobs":[{}]}})", offsets,
      values, words, tops);
}

void append_prompt_logprobs(std::string& out, const TokenNames& names,
                            std::span<const std::vector<TokenLogprob>> scores) {
  out += '[';
  for (size_t i = 0; i < scores.size(); ++i) {
    if (i) out += ',';
    if (scores[i].empty()) {
      out += "null";
      continue;
    }
    std::set<int32_t> seen;
    out += '{';
    for (const auto& t : scores[i]) {
      if (!seen.insert(t.token).second) continue;
      if (out.back() != '{') out += ',';
      fmt::format_to(std::back_inserter(out), "\"{}\":{{\"logprob\":", t.token);
      append_logprob(out, t.logprob);
      out += ",\"decoded_token\":";
      append_json_string(out, names.bytes(t.token));
      out += '}';
    }
    out += '}';
  }
  out += ']';
}

void UsageTotals::add(const GenerationResult& r) {
  cached_tokens += r.cached_tokens;
  if (first) {
    kv = r.kv;
    first = false;
  } else {
    add_usage(kv, r.kv);
  }
}

void append_usage(std::string& out, const UsageTotals& u, bool with_kv) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{})",
                 u.prompt_tokens, u.completion_tokens, u.prompt_tokens + u.completion_tokens);
  if (with_kv) {
    fmt::format_to(std::back_inserter(out), R"(,"prompt_tokens_details":{{"cached_tokens":{})",
                   u.cached_tokens);
    if (u.dropped_tokens) {
      fmt::format_to(std::back_inserter(out), R"(,"dropped_tokens":{})", *u.dropped_tokens);
    }
    fmt::format_to(std::back_inserter(out), R"(}},"kv":{})", kv_usage_json(u.kv));
  }
  out += '}';
}

void append_token_ids(std::string& out, std::span<const int32_t> tokens) {
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i ? "," : "", tokens[i]);
  }
  out += ']';
}

void append_sse(std::string& out, std::string_view json) {
  out += "data: ";
  out += json;
  out += "\n\n";
}

}  // namespace pagefold
