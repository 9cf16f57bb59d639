#include "grammar/rule_text.h"

#include <algorithm>
#include <map>
#include <string>

#include "grammar/regex.h"

namespace pagefold::grammar {
namespace {

constexpr int kMaxRuleGroups = 100;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class RuleTextParser {
 public:
  RuleTextParser(Grammar& grammar, std::string_view text) : g_(grammar), text_(text) {}

  Result<ExprId> parse() {
    skip();
    std::string_view first;
    while (at_ < text_.size()) {
      const std::string_view name = take_name();
      if (name.empty() || !take_define()) return fault("expected a rule: name ::= ...");
      if (first.empty()) first = name;
      const RuleId rule = rule_named(name);
      if (g_.rules()[static_cast<size_t>(rule)] >= 0) return fault("a rule is defined twice");
      PF_ASSIGN(const ExprId body, alternatives(0));
      g_.define(rule, body);
      if (at_ < text_.size() && !at_rule()) return fault("something that is no term of a rule");
    }
    if (first.empty()) return bad_input("the grammar is empty");
    const auto root = rules_.find(std::string_view("root"));
    return g_.call(root != rules_.end() ? root->second : rules_.find(first)->second);
  }

 private:
  Status fault(std::string_view what) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n');
    return bad_input("the grammar is not usable in line {}: {}", line, what);
  }
  // White space and comments.
  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }
  bool peek(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char c) {
    if (!peek(c)) return false;
    ++at_;
    skip();
    return true;
  }
  std::string_view take_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    skip();
    return name;
  }
  bool take_define() {
    for (const std::string_view sign : {"::=", ":="}) {
      if (!text_.substr(at_).starts_with(sign)) continue;
      at_ += sign.size();
      skip();
      return true;
    }
    return take(':');
  }
  // Whether a rule begins here.
  bool at_rule() {
    const size_t begin = at_;
    const bool yes = !take_name().empty() && take_define();
    at_ = begin;
    return yes;
  }
  RuleId rule_named(std::string_view name) {
    const auto [it, fresh] = rules_.try_emplace(name, 0);
    if (fresh) it->second = g_.declare();
    return it->second;
  }

  Result<ExprId> alternatives(int depth) {
    std::vector<ExprId> branches;
    do {
      PF_ASSIGN(const ExprId branch, sequence(depth));
      branches.push_back(branch);
    } while (take('|'));
    return g_.alt(std::move(branches));
  }

  Result<ExprId> sequence(int depth) {
    std::vector<ExprId> parts;
    while (at_ < text_.size() && !peek('|') && !peek(')') && !(is_name(text_[at_]) && at_rule())) {
      if (g_.full()) return fault("it is too large");
      const size_t before = at_;
      PF_ASSIGN(const ExprId term, one_term(depth));
      if (at_ == before) break;
      PF_ASSIGN(const ExprId repeated, repeats(term));
      parts.push_back(repeated);
    }
    return g_.seq(std::move(parts));
  }

  Result<ExprId> one_term(int depth) {
    if (take('(')) {
      if (depth >= kMaxRuleGroups) return fault("more than 100 groups inside each other");
      PF_ASSIGN(const ExprId inside, alternatives(depth + 1));
      if (!take(')')) return fault("a group has no closing bracket");
      return inside;
    }
    if (peek('"') || peek('\'')) return quoted(text_[at_]);
    if (take('.')) return g_.chars(CharSet::all());
    if (peek('[')) return bracket();
    if (is_name(text_[at_])) return g_.call(rule_named(take_name()));
    return fault("something that is no term of a rule");
  }

  // A class is a regular expression by itself.
  Result<ExprId> bracket() {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != ']') end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return fault("a class has no closing bracket");
    const auto set = regex_expr(g_, text_.substr(at_, end + 1 - at_));
    if (!set.ok()) return fault("a class is not usable");
    at_ = end + 1;
    skip();
    return *set;
  }

  Result<ExprId> quoted(char quote) {
    std::vector<ExprId> parts;
    size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] != '\\') {
        ++at_;
        continue;
      }
      parts.push_back(g_.literal(text_.substr(begin, at_ - begin)));
      const char kind = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
      const size_t n = kind == 'x' ? 4 : kind == 'u' ? 6 : kind == 'U' ? 10 : 2;
      std::string escape(text_.substr(at_, n));
      if (escape.size() == n && kind == 'U') escape = "\\u{" + escape.substr(4) + "}";
      const auto one = regex_expr(g_, escape);
      if (!one.ok() || escape.size() < n) return fault("an escape is not understood");
      parts.push_back(*one);
      begin = at_ += n;
    }
    if (at_ >= text_.size()) return fault("a text has no closing quote");
    parts.push_back(g_.literal(text_.substr(begin, at_ - begin)));
    ++at_;
    skip();
    return g_.seq(std::move(parts));
  }

  Result<ExprId> repeats(ExprId part) {
    for (int n = 0; at_ < text_.size() && n < 4; ++n) {
      if (take('*')) {
        part = g_.star(part);
      } else if (take('+')) {
        part = g_.repeat(part, 1, kUnbounded);
      } else if (take('?')) {
        part = g_.optional(part);
      } else if (take('{')) {
        PF_ASSIGN(const int low, number());
        int high = low;
        if (take(',')) {
          high = kUnbounded;
          if (!peek('}')) {
            PF_ASSIGN(high, number());
          }
        }
        if (!take('}') || (high != kUnbounded && high < low)) return fault("a repeat is {n,m}");
        part = g_.repeat(part, low, high);
      } else {
        break;
      }
    }
    return part;
  }
  Result<int> number() {
    int value = -1;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = std::max(value, 0) * 10 + (text_[at_] - '0');
      if (value > Grammar::kMaxRepeat) return fault("a repeat is counted to 100000 at most");
    }
    skip();
    if (value < 0) return fault("a repeat is {n,m}");
    return value;
  }

  Grammar& g_;
  const std::string_view text_;
  size_t at_ = 0;
  std::map<std::string_view, RuleId> rules_;
};

}  // namespace

Result<ExprId> rules_expr(Grammar& grammar, std::string_view text) {
  if (text.size() > kMaxRuleTextBytes) {
    return bad_input("the grammar has {} bytes, at most {} are accepted", text.size(),
                     kMaxRuleTextBytes);
  }
  return RuleTextParser(grammar, text).parse();
}

}  // namespace pagefold::grammar
