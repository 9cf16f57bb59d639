// deps: pagefold_grammar
// Expressions, schemas and rules of clients: the first byte picks the kind, the second is how a
// walk along the masks begins. Whatever compiles can be followed, every token in a mask fits, and a
// text that ends matches.
#include <cstdint>
#include <memory>
#include <string_view>

#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/rule_text.h"
#include "grammar/token_grammar.h"

namespace {

using namespace pagefold;

std::shared_ptr<const grammar::Vocabulary> vocabulary() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  for (const char* piece : {"", "{\"", "\":", "\", ", "}}", "true", "12", "abc", "\n  "}) {
    tokens.emplace_back(piece);
  }
  return std::make_shared<const grammar::Vocabulary>(std::move(tokens), std::vector<int32_t>{256});
}

Result<grammar::ExprId> build(grammar::Grammar& g, uint8_t kind, std::string_view text) {
  if (kind == 0) return grammar::regex_expr(g, text);
  if (kind == 1) return grammar::rules_expr(g, text);
  PF_ASSIGN(const Json schema, parse_json(text));
  return grammar::schema_expr(g, schema);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokens = vocabulary();
  if (size < 2 || size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  grammar::Grammar g;
  const auto whole = build(g, data[0] % 3, text);
  if (!whole.ok()) return 0;
  const auto made = TokenGrammar::make(g, g.rule_of(*whole), tokens);
  if (!made.ok()) return 0;
  GrammarMatcher matcher(*made);
  std::string read;
  uint32_t dice = data[1];
  for (int step = 0; step < 24 && !matcher.finished(); ++step) {
    const grammar::TokenMask* mask = matcher.allowed();
    if (mask == nullptr) return 0;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < tokens->size(); ++id) {
      if (grammar::mask_allows(*mask, id)) allowed.push_back(id);
    }
    if (allowed.empty()) __builtin_trap();  // every byte is a token: there is always a way on
    dice = dice * 1664525u + 1013904223u;
    const int32_t pick = allowed[(dice >> 8) % allowed.size()];
    if (!matcher.accept(pick)) __builtin_trap();
    read += tokens->bytes(pick);
  }
  if (matcher.finished() && !(*made)->matches(read)) __builtin_trap();
  return 0;
}
