// A grammar over bytes: rules whose bodies are regular expressions that may call rules. It is what
// regular expressions, JSON schemas and written grammars are turned into, and what an Automaton
// (automaton.h) is compiled from. Text is UTF-8: characters become byte sequences here.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/char_set.h"

namespace pagefold::grammar {

using ByteSet = std::bitset<256>;
using ExprId = int32_t;
using RuleId = int32_t;

inline constexpr int kUnbounded = -1;

struct Expr {
  enum class Kind : uint8_t { empty, never, bytes, seq, alt, repeat, rule };
  Kind kind = Kind::empty;
  int32_t index = 0;          // bytes: into byte_sets(); rule: the rule
  int min = 0, max = 0;       // repeat
  std::vector<ExprId> parts;  // seq, alt; repeat: one
};

// Grows only. Builders of hostile input check full() as they go: beyond the limit every expression
// made is `never`, and compiling refuses.
class Grammar {
 public:
  static constexpr size_t kMaxExprs = 400'000;
  static constexpr size_t kMaxByteSets = 20'000;
  static constexpr int kMaxRepeat = 100'000;

  Grammar();
  ExprId empty() const { return 0; }  // the empty text
  ExprId never() const { return 1; }  // nothing matches
  ExprId bytes(const ByteSet& set);
  ExprId literal(std::string_view text);
  ExprId chars(const CharSet& set);               // one character, as UTF-8
  ExprId choice(std::vector<std::string> texts);  // one of them; equal beginnings are shared
  ExprId seq(std::vector<ExprId> parts);
  ExprId alt(std::vector<ExprId> parts);
  ExprId repeat(ExprId part, int min, int max);  // max may be kUnbounded
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId star(ExprId part) { return repeat(part, 0, kUnbounded); }
  ExprId call(RuleId rule);
  // Text up to and including the first occurrence of `end`, which is ASCII and not empty.
  ExprId until(std::string_view end);

  RuleId declare();
  void define(RuleId rule, ExprId body) { rules_[static_cast<size_t>(rule)] = body; }
  RuleId rule_of(ExprId body) {  // declares and defines
    const RuleId r = declare();
    define(r, body);
    return r;
  }
  ExprId call_of(ExprId body) { return call(rule_of(body)); }

  bool full() const { return exprs_.size() > kMaxExprs || byte_sets_.size() > kMaxByteSets; }
  size_t size() const { return exprs_.size(); }
  const Expr& operator[](ExprId id) const { return exprs_[static_cast<size_t>(id)]; }
  const std::vector<ExprId>& rules() const { return rules_; }
  const std::vector<ByteSet>& byte_sets() const { return byte_sets_; }

 private:
  ExprId add(Expr expr);
  ExprId choice_rest(std::span<const std::string> texts, size_t from, int depth);
  std::vector<Expr> exprs_;
  std::vector<ExprId> rules_;  // bodies; -1: not defined
  std::vector<ByteSet> byte_sets_;
  std::unordered_map<ByteSet, int32_t> set_index_;
};

ByteSet byte_range(unsigned first, unsigned last);

}  // namespace pagefold::grammar
