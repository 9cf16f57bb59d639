// Tokens to a Program. Grammar and precedence: the Jinja2 template designer documentation.
#pragma once

#include <string_view>
#include <unordered_map>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace pagefold::jinja {

// max_depth limits how deep tags and brackets nest.
Result<Program> parse_program(std::string_view source, int max_depth);

class Parser {
 public:
  Parser(std::vector<Token> tokens, int max_depth);
  Result<Program> run();

 private:
  enum class Cond : bool { no, yes };
  // Levels of binary operators, from the loosest to the tightest: or, and, + -, ~, * / // %, **.
  enum class Binary : uint8_t { alternative, conjunction, sum, concat, product, power };
  // One level of nesting for as long as it lives.
  struct Level {
    explicit Level(int& d) : depth(d) { ++depth; }
    ~Level() { --depth; }
    int& depth;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_op(std::string_view op) const { return now().type == Tok::op && now().text == op; }
  bool is_name(std::string_view n) const { return now().type == Tok::name && now().text == n; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  Status expect_op(std::string_view op);
  Status expect_name(std::string_view name);
  Status expect(Tok type, std::string_view what);
  Status fail(std::string_view what) const;
  Status unexpected(std::string_view wanted) const;
  Status check_depth() const;
  int symbol(const std::string& name);

  // parser_expr.cpp
  ExprPtr node(Ex kind, int line) const;
  Result<ExprPtr> done(ExprPtr e) const;  // sets and checks the height
  Result<ExprPtr> expression(Cond cond = Cond::yes);
  Result<ExprPtr> tuple_or_one(Cond cond, bool parenthesised = false);
  bool tuple_ends() const;
  Result<ExprPtr> binary(Binary level);
  Result<ExprPtr> operand(Binary level);
  Result<ExprPtr> not_expr();
  Result<ExprPtr> compare_expr();
  Result<ExprPtr> unary(bool with_filter);
  Result<ExprPtr> primary();
  Result<ExprPtr> number_literal();
  Result<ExprPtr> list_literal();
  Result<ExprPtr> dict_literal();
  Result<ExprPtr> postfix(ExprPtr e);
  Result<ExprPtr> subscript(ExprPtr e);
  Result<ExprPtr> filters(ExprPtr e);
  Result<ExprPtr> filter_chain(ExprPtr e, bool bar_first);
  Result<ExprPtr> test(ExprPtr e);
  Status call_args(Expr& call);

  // parser_stmt.cpp
  Result<Block> block_until(std::initializer_list<std::string_view> ends);
  Result<std::unique_ptr<Stmt>> statement();
  Result<std::unique_ptr<Stmt>> if_statement();
  Result<std::unique_ptr<Stmt>> for_statement();
  Result<std::unique_ptr<Stmt>> set_statement();
  Result<std::unique_ptr<Stmt>> with_statement();
  Result<std::unique_ptr<Stmt>> macro_statement();
  Result<std::unique_ptr<Stmt>> call_statement();
  Result<std::unique_ptr<Stmt>> filter_statement();
  Result<Target> target(bool names_only, bool tuples = true);
  Result<Target> one_target(bool names_only);
  Status params(Callee& callee);
  Result<Block> callee_body(Callee& callee, std::string_view end);
  Status end_tag();

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int max_depth_;
  int depth_ = 0;
  int loops_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int> symbols_;
  std::vector<Callee*> callees_;  // the macros being parsed, for caller, varargs and kwargs
};

}  // namespace pagefold::jinja
