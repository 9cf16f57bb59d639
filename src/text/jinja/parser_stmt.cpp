#include <algorithm>

#include "text/jinja/parser.h"

namespace pagefold::jinja {

Parser::Parser(std::vector<Token> tokens, int max_depth)
    : tokens_(std::move(tokens)), max_depth_(max_depth) {}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}
bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}
Status Parser::fail(std::string_view what) const {
  return bad_input("line {}: {}", now().line, what);
}

Status Parser::unexpected(std::string_view wanted) const {
  std::string got = now().text;
  if (got.empty()) {
    got = now().type == Tok::end         ? "the end of the template"
          : now().type == Tok::print_end ? "'}}'"
          : now().type == Tok::block_end ? "'%}'"
                                         : "text";
  } else if (got.size() > 40) {
    got = "text";
  } else {
    got = "'" + got + "'";
  }
  return bad_input("line {}: expected {}, got {}", now().line, wanted, got);
}

Status Parser::expect_op(std::string_view op) {
  return skip_op(op) ? ok_status() : unexpected(fmt::format("'{}'", op));
}
Status Parser::expect_name(std::string_view name) {
  return skip_name(name) ? ok_status() : unexpected(fmt::format("'{}'", name));
}
Status Parser::expect(Tok type, std::string_view what) {
  if (now().type != type) return unexpected(what);
  take();
  return ok_status();
}
Status Parser::end_tag() { return expect(Tok::block_end, "'%}'"); }

Status Parser::check_depth() const {
  // An expression in brackets takes two levels here.
  if (depth_ <= 2 * max_depth_) return ok_status();
  return exhausted("line {}: the template is nested more than {} levels deep", now().line,
                   max_depth_);
}

int Parser::symbol(const std::string& name) {
  const auto [it, fresh] = symbols_.try_emplace(name, static_cast<int>(names_.size()));
  if (fresh) names_.push_back(name);
  return it->second;
}

Result<Program> Parser::run() {
  PF_ASSIGN(Block body, block_until({}));
  return Program{std::move(body), std::move(names_)};
}

// Statements up to a tag named in `ends`; the tag's name is the current token then.
Result<Block> Parser::block_until(std::initializer_list<std::string_view> ends) {
  const Level level(depth_);
  PF_TRY(check_depth());
  Block block;
  while (true) {
    const int line = now().line;
    if (now().type == Tok::data) {
      auto s = std::make_unique<Stmt>();
      s->line = line;
      s->text = take().text;
      block.push_back(std::move(s));
    } else if (now().type == Tok::print_begin) {
      take();
      auto s = std::make_unique<Stmt>();
      s->kind = St::print;
      s->line = line;
      PF_ASSIGN(s->expr, tuple_or_one(Cond::yes));
      PF_TRY(expect(Tok::print_end, "'}}'"));
      block.push_back(std::move(s));
    } else if (now().type == Tok::block_begin) {
      take();
      if (now().type != Tok::name) return unexpected("the name of a tag");
      if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return block;
      PF_ASSIGN(auto s, statement());
      s->line = line;
      block.push_back(std::move(s));
    } else {
      if (ends.size() == 0) return block;
      return bad_input("line {}: the template ends where a '{}' tag is needed", line,
                       *(ends.end() - 1));
    }
  }
}

Result<std::unique_ptr<Stmt>> Parser::statement() {
  const std::string name = take().text;
  if (name == "if") return if_statement();
  if (name == "for") return for_statement();
  if (name == "set") return set_statement();
  if (name == "with") return with_statement();
  if (name == "macro") return macro_statement();
  if (name == "call") return call_statement();
  if (name == "filter") return filter_statement();
  auto s = std::make_unique<Stmt>();
  if (name == "generation") {
    // Marks what the assistant wrote, for training; nothing to do when rendering.
    PF_TRY(end_tag());
    s->kind = St::group;
    PF_ASSIGN(s->body, block_until({"endgeneration"}));
    take();
    PF_TRY(end_tag());
    return s;
  }
  if (name == "break" || name == "continue") {
    if (loops_ == 0) return fail("'" + name + "' outside of a loop");
    s->kind = name == "break" ? St::break_ : St::continue_;
    PF_TRY(end_tag());
    return s;
  }
  if (name == "print") {
    s->kind = St::group;
    while (now().type != Tok::block_end) {
      if (!s->body.empty()) PF_TRY(expect_op(","));
      auto p = std::make_unique<Stmt>();
      p->kind = St::print;
      p->line = now().line;
      PF_ASSIGN(p->expr, expression());
      s->body.push_back(std::move(p));
    }
    PF_TRY(end_tag());
    return s;
  }
  static constexpr std::string_view kRefused[] = {"block", "extends",    "include", "import",
                                                  "from",  "autoescape", "do"};
  for (const auto word : kRefused) {
    if (name == word) {
      return unsupported("line {}: the tag '{}' is not supported in chat templates", now().line,
                         name);
    }
  }
  return bad_input("line {}: unknown tag '{}'", now().line, name);
}

Result<std::unique_ptr<Stmt>> Parser::if_statement() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::if_;
  while (true) {
    PF_ASSIGN(ExprPtr cond, tuple_or_one(Cond::no));
    PF_TRY(end_tag());
    PF_ASSIGN(Block body, block_until({"elif", "else", "endif"}));
    s->branches.emplace_back(std::move(cond), std::move(body));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      PF_TRY(end_tag());
      PF_ASSIGN(s->orelse, block_until({"endif"}));
    }
    take();
    PF_TRY(end_tag());
    return s;
  }
}

Result<std::unique_ptr<Stmt>> Parser::for_statement() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::for_;
  PF_ASSIGN(s->target, target(true));
  PF_TRY(expect_name("in"));
  PF_ASSIGN(s->expr, tuple_or_one(Cond::no));
  if (skip_name("if")) {
    PF_ASSIGN(s->cond, expression());
  }
  if (is_name("recursive")) {
    return unsupported("line {}: recursive loops are not supported", now().line);
  }
  PF_TRY(end_tag());
  ++loops_;
  PF_ASSIGN(s->body, block_until({"else", "endfor"}));
  --loops_;
  s->symbol = symbol("loop");
  if (skip_name("else")) {
    PF_TRY(end_tag());
    PF_ASSIGN(s->orelse, block_until({"endfor"}));
  }
  take();
  PF_TRY(end_tag());
  return s;
}

Result<Target> Parser::one_target(bool names_only) {
  const Level level(depth_);
  PF_TRY(check_depth());
  if (skip_op("(")) {
    PF_ASSIGN(Target t, target(names_only));
    PF_TRY(expect_op(")"));
    return t;
  }
  if (now().type != Tok::name) return unexpected("a name to assign to");
  static constexpr std::string_view kReserved[] = {"true", "false", "none",
                                                   "True", "False", "None"};
  for (const auto word : kReserved) {
    if (is_name(word)) return fail(fmt::format("cannot assign to '{}'", word));
  }
  Target t;
  t.symbol = symbol(take().text);
  if (!names_only && skip_op(".")) {
    if (now().type != Tok::name) return unexpected("an attribute of a namespace");
    t.attribute = take().text;
  }
  return t;
}

Result<Target> Parser::target(bool names_only, bool tuples) {
  PF_ASSIGN(Target first, one_target(names_only));
  if (!tuples || !is_op(",")) return first;
  Target t;
  t.is_tuple = true;
  t.parts.push_back(std::move(first));
  while (skip_op(",")) {
    if (is_name("in") || is_op("=") || is_op(")")) break;
    PF_ASSIGN(Target part, one_target(names_only));
    t.parts.push_back(std::move(part));
  }
  return t;
}

Result<std::unique_ptr<Stmt>> Parser::set_statement() {
  auto s = std::make_unique<Stmt>();
  PF_ASSIGN(s->target, target(false));
  if (skip_op("=")) {
    s->kind = St::set;
    PF_ASSIGN(s->expr, tuple_or_one(Cond::yes));
    PF_TRY(end_tag());
    return s;
  }
  s->kind = St::set_block;
  if (is_op("|")) {
    PF_ASSIGN(s->expr, filter_chain(nullptr, true));
  }
  PF_TRY(end_tag());
  PF_ASSIGN(s->body, block_until({"endset"}));
  take();
  PF_TRY(end_tag());
  return s;
}

Result<std::unique_ptr<Stmt>> Parser::with_statement() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::with;
  while (now().type != Tok::block_end) {
    if (!s->assigns.empty()) PF_TRY(expect_op(","));
    PF_ASSIGN(Target t, target(true, false));
    PF_TRY(expect_op("="));
    PF_ASSIGN(ExprPtr e, expression());
    s->assigns.emplace_back(std::move(t), std::move(e));
  }
  PF_TRY(end_tag());
  PF_ASSIGN(s->body, block_until({"endwith"}));
  take();
  PF_TRY(end_tag());
  return s;
}

Status Parser::params(Callee& callee) {
  PF_TRY(expect_op("("));
  while (!is_op(")")) {
    if (!callee.params.empty()) PF_TRY(expect_op(","));
    PF_ASSIGN(const Target t, one_target(true));
    if (t.is_tuple) return fail("a macro's parameter must be a name");
    Param p;
    p.symbol = t.symbol;
    p.name = names_[t.symbol];
    if (skip_op("=")) {
      PF_ASSIGN(p.fallback, expression());
    } else if (!callee.params.empty() && callee.params.back().fallback) {
      return fail("a parameter without default follows one with default");
    }
    callee.params.push_back(std::move(p));
  }
  take();
  return ok_status();
}

// Breaks and continues do not reach out of a macro.
Result<Block> Parser::callee_body(Callee& callee, std::string_view end) {
  PF_TRY(end_tag());
  const int loops = std::exchange(loops_, 0);
  callees_.push_back(&callee);
  auto body = block_until({end});
  callees_.pop_back();
  loops_ = loops;
  if (!body.ok()) return body;
  take();
  PF_TRY(end_tag());
  return body;
}

Result<std::unique_ptr<Stmt>> Parser::macro_statement() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::macro;
  s->callee = std::make_unique<Callee>();
  if (now().type != Tok::name) return unexpected("the name of a macro");
  s->callee->name = take().text;
  s->symbol = symbol(s->callee->name);
  PF_TRY(params(*s->callee));
  PF_ASSIGN(s->callee->body, callee_body(*s->callee, "endmacro"));
  return s;
}

Result<std::unique_ptr<Stmt>> Parser::call_statement() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::call;
  s->callee = std::make_unique<Callee>();
  s->callee->name = "caller";
  if (is_op("(")) PF_TRY(params(*s->callee));
  PF_ASSIGN(s->expr, expression());
  if (s->expr->kind != Ex::call) return fail("a call tag needs a call");
  PF_ASSIGN(s->callee->body, callee_body(*s->callee, "endcall"));
  return s;
}

Result<std::unique_ptr<Stmt>> Parser::filter_statement() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::filter;
  PF_ASSIGN(s->expr, filter_chain(nullptr, false));
  PF_TRY(end_tag());
  PF_ASSIGN(s->body, block_until({"endfilter"}));
  take();
  PF_TRY(end_tag());
  return s;
}

Result<Program> parse_program(std::string_view source, int max_depth) {
  PF_ASSIGN(std::vector<Token> tokens, lex(source));
  return Parser(std::move(tokens), max_depth).run();
}

}  // namespace pagefold::jinja
