#include <charconv>
#include <cstdlib>

#include "text/jinja/parser.h"

namespace pagefold::jinja {

ExprPtr Parser::node(Ex kind, int line) const {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->line = line;
  return e;
}

Result<ExprPtr> Parser::done(ExprPtr e) const {
  int height = 0;
  for (const auto& a : e->args) {
    if (a) height = std::max(height, a->height);
  }
  for (const auto& k : e->keywords) height = std::max(height, k.value->height);
  if (e->star) height = std::max(height, e->star->height);
  if (e->star_star) height = std::max(height, e->star_star->height);
  e->height = height + 1;
  // Evaluating and freeing recurse as deep as the tree is high; chains such as a.b.c add to it.
  if (e->height > 4 * max_depth_) {
    return exhausted("line {}: an expression is nested too deep (limit {})", e->line,
                     4 * max_depth_);
  }
  return e;
}

Result<ExprPtr> Parser::expression(Cond cond) {
  const Level level(depth_);
  PF_TRY(check_depth());
  PF_ASSIGN(ExprPtr e, binary(Binary::alternative));
  while (cond == Cond::yes && is_name("if")) {
    ExprPtr choice = node(Ex::choose, take().line);
    PF_ASSIGN(ExprPtr test_expr, binary(Binary::alternative));
    ExprPtr other;
    if (skip_name("else")) {
      PF_ASSIGN(other, expression());
    }
    choice->args.push_back(std::move(e));
    choice->args.push_back(std::move(test_expr));
    choice->args.push_back(std::move(other));
    PF_ASSIGN(e, done(std::move(choice)));
  }
  return e;
}

bool Parser::tuple_ends() const {
  return now().type == Tok::print_end || now().type == Tok::block_end || is_op(")") ||
         is_name("recursive");
}

Result<ExprPtr> Parser::tuple_or_one(Cond cond, bool parenthesised) {
  const int line = now().line;
  ExprPtr tuple = node(Ex::tuple, line);
  bool comma = false;
  while (!tuple_ends()) {
    PF_ASSIGN(ExprPtr e, expression(cond));
    tuple->args.push_back(std::move(e));
    if (!is_op(",")) break;
    take();
    comma = true;
  }
  if (tuple->args.size() == 1 && !comma) return std::move(tuple->args[0]);
  if (tuple->args.empty() && !parenthesised) return unexpected("an expression");
  return done(std::move(tuple));
}

Result<ExprPtr> Parser::not_expr() {
  if (!is_name("not")) return compare_expr();
  const Level level(depth_);
  PF_TRY(check_depth());
  ExprPtr e = node(Ex::not_, take().line);
  PF_ASSIGN(ExprPtr inner, not_expr());
  e->args.push_back(std::move(inner));
  return done(std::move(e));
}

Result<ExprPtr> Parser::compare_expr() {
  PF_ASSIGN(ExprPtr first, binary(Binary::sum));
  ExprPtr e = node(Ex::compare, now().line);
  e->args.push_back(std::move(first));
  static const std::unordered_map<std::string, Op> kOps = {
      {"==", Op::eq}, {"!=", Op::ne}, {"<", Op::lt}, {"<=", Op::le}, {">", Op::gt}, {">=", Op::ge}};
  while (true) {
    if (now().type == Tok::op && kOps.contains(now().text)) {
      e->ops.push_back(kOps.at(take().text));
    } else if (skip_name("in")) {
      e->ops.push_back(Op::in);
    } else if (is_name("not") && next().type == Tok::name && next().text == "in") {
      take(), take();
      e->ops.push_back(Op::not_in);
    } else {
      break;
    }
    PF_ASSIGN(ExprPtr right, binary(Binary::sum));
    e->args.push_back(std::move(right));
  }
  if (e->ops.empty()) return std::move(e->args[0]);
  return done(std::move(e));
}

namespace {

// Operators that bind alike and group to the left (** too, unlike in Python).
struct BinaryLevel {
  Ex kind;
  Tok type;  // of the operator's token
  std::unordered_map<std::string, Op> ops;
};

const BinaryLevel& binary_level(size_t level) {
  static const BinaryLevel kLevels[] = {
      {Ex::or_, Tok::name, {{"or", Op{}}}},
      {Ex::and_, Tok::name, {{"and", Op{}}}},
      {Ex::chain, Tok::op, {{"+", Op::add}, {"-", Op::sub}}},
      {Ex::concat, Tok::op, {{"~", Op{}}}},
      {Ex::chain, Tok::op, {{"*", Op::mul}, {"/", Op::div}, {"//", Op::floor_div}, {"%", Op::mod}}},
      {Ex::chain, Tok::op, {{"**", Op::pow}}},
  };
  return kLevels[level];
}

}  // namespace

// What stands between the operators of a level: the next tighter level, with `not` and the
// comparisons below `and`.
Result<ExprPtr> Parser::operand(Binary level) {
  if (level == Binary::conjunction) return not_expr();
  if (level == Binary::power) return unary(true);
  return binary(static_cast<Binary>(static_cast<size_t>(level) + 1));
}

Result<ExprPtr> Parser::binary(Binary level) {
  const BinaryLevel& b = binary_level(static_cast<size_t>(level));
  PF_ASSIGN(ExprPtr first, operand(level));
  const auto at_operator = [&] { return now().type == b.type && b.ops.contains(now().text); };
  if (!at_operator()) return first;
  ExprPtr e = node(b.kind, now().line);
  e->args.push_back(std::move(first));
  while (at_operator()) {
    const Op op = b.ops.at(take().text);
    if (b.kind == Ex::chain) e->ops.push_back(op);
    PF_ASSIGN(ExprPtr right, operand(level));
    e->args.push_back(std::move(right));
  }
  return done(std::move(e));
}

Result<ExprPtr> Parser::unary(bool with_filter) {
  const Level level(depth_);
  PF_TRY(check_depth());
  ExprPtr e;
  if (is_op("-") || is_op("+")) {
    e = node(is_op("-") ? Ex::negate : Ex::plus, now().line);
    take();
    PF_ASSIGN(ExprPtr inner, unary(false));
    e->args.push_back(std::move(inner));
    PF_ASSIGN(e, done(std::move(e)));
  } else {
    PF_ASSIGN(e, primary());
  }
  PF_ASSIGN(e, postfix(std::move(e)));
  if (!with_filter) return e;
  return filters(std::move(e));
}

Result<ExprPtr> Parser::primary() {
  const Token& t = now();
  ExprPtr e = node(Ex::literal, t.line);
  switch (t.type) {
    case Tok::name: {
      const std::string name = take().text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        e->value = Value::boolean(name[0] == 't' || name[0] == 'T');
      } else if (name == "none" || name == "None") {
        e->value = Value::none();
      } else {
        e->kind = Ex::name;
        e->text = name;
        e->symbol = symbol(name);
        for (Callee* c : callees_) {
          c->uses_caller |= name == "caller";
          c->uses_varargs |= name == "varargs";
          c->uses_kwargs |= name == "kwargs";
        }
      }
      return e;
    }
    case Tok::string: {
      std::string text = take().text;
      while (now().type == Tok::string) text += take().text;
      e->value = make_literal(std::move(text));
      return e;
    }
    case Tok::integer:
    case Tok::real:
      return number_literal();
    default:
      break;
  }
  if (skip_op("(")) {
    PF_ASSIGN(e, tuple_or_one(Cond::yes, true));
    PF_TRY(expect_op(")"));
    return e;
  }
  if (is_op("[")) return list_literal();
  if (is_op("{")) return dict_literal();
  return unexpected("an expression");
}

Result<ExprPtr> Parser::number_literal() {
  const Token& t = take();
  ExprPtr e = node(Ex::literal, t.line);
  const char* end = t.text.data() + t.text.size();
  if (t.type == Tok::integer) {
    int64_t n = 0;
    if (std::from_chars(t.text.data(), end, n).ec != std::errc()) {
      return bad_input("line {}: the integer {} does not fit in 64 bits", t.line, t.text);
    }
    e->value = Value::integer(n);
  } else {
    double d = 0;
    if (std::from_chars(t.text.data(), end, d).ec == std::errc::result_out_of_range) {
      d = std::strtod(t.text.c_str(), nullptr);  // 0 or infinity, as Python has it
    }
    e->value = Value::real(d);
  }
  return e;
}

Result<ExprPtr> Parser::list_literal() {
  ExprPtr e = node(Ex::list, take().line);
  while (!is_op("]")) {
    if (!e->args.empty()) {
      PF_TRY(expect_op(","));
      if (is_op("]")) break;
    }
    PF_ASSIGN(ExprPtr item, expression());
    e->args.push_back(std::move(item));
  }
  take();
  return done(std::move(e));
}

Result<ExprPtr> Parser::dict_literal() {
  ExprPtr e = node(Ex::dict, take().line);
  while (!is_op("}")) {
    if (!e->args.empty()) {
      PF_TRY(expect_op(","));
      if (is_op("}")) break;
    }
    PF_ASSIGN(ExprPtr key, expression());
    PF_TRY(expect_op(":"));
    PF_ASSIGN(ExprPtr item, expression());
    e->args.push_back(std::move(key));
    e->args.push_back(std::move(item));
  }
  take();
  return done(std::move(e));
}

Result<ExprPtr> Parser::postfix(ExprPtr e) {
  while (true) {
    if (is_op(".")) {
      const int line = take().line;
      if (now().type == Tok::name) {
        ExprPtr a = node(Ex::attribute, line);
        a->text = take().text;
        a->args.push_back(std::move(e));
        PF_ASSIGN(e, done(std::move(a)));
      } else if (now().type == Tok::integer) {
        ExprPtr a = node(Ex::subscript, line);
        a->args.push_back(std::move(e));
        PF_ASSIGN(ExprPtr index, number_literal());
        a->args.push_back(std::move(index));
        PF_ASSIGN(e, done(std::move(a)));
      } else {
        return unexpected("a name or a number after '.'");
      }
    } else if (is_op("[")) {
      PF_ASSIGN(e, subscript(std::move(e)));
    } else if (is_op("(")) {
      ExprPtr call = node(Ex::call, now().line);
      call->args.push_back(std::move(e));
      PF_TRY(call_args(*call));
      PF_ASSIGN(e, done(std::move(call)));
    } else {
      return e;
    }
  }
}

Result<ExprPtr> Parser::subscript(ExprPtr e) {
  const int line = take().line;
  ExprPtr parts[3];
  int colons = 0;
  while (!is_op("]")) {
    if (is_op(":") && colons < 2) {
      take();
      ++colons;
      continue;
    }
    if (parts[colons]) return unexpected("']'");
    PF_ASSIGN(parts[colons], expression());
    if (is_op(",")) return fail("a subscript takes one index or slice");
  }
  take();
  if (colons == 0 && !parts[0]) return fail("a subscript is empty");
  ExprPtr s = node(colons == 0 ? Ex::subscript : Ex::slice, line);
  s->args.push_back(std::move(e));
  for (int i = 0; i < (colons == 0 ? 1 : 3); ++i) s->args.push_back(std::move(parts[i]));
  return done(std::move(s));
}

Result<ExprPtr> Parser::filters(ExprPtr e) {
  while (true) {
    if (is_op("|")) {
      PF_ASSIGN(e, filter_chain(std::move(e), true));
    } else if (is_name("is")) {
      PF_ASSIGN(e, test(std::move(e)));
    } else if (is_op("(")) {
      ExprPtr call = node(Ex::call, now().line);
      call->args.push_back(std::move(e));
      PF_TRY(call_args(*call));
      PF_ASSIGN(e, done(std::move(call)));
    } else {
      return e;
    }
  }
}

// e|a(..)|b ; filter tags start without the first bar and with a null expression.
Result<ExprPtr> Parser::filter_chain(ExprPtr e, bool bar_first) {
  while (!bar_first || is_op("|")) {
    if (bar_first) take();
    bar_first = true;
    if (now().type != Tok::name) return unexpected("the name of a filter");
    ExprPtr f = node(Ex::filter, now().line);
    f->text = take().text;
    while (skip_op(".")) {
      if (now().type != Tok::name) return unexpected("the name of a filter");
      f->text += "." + take().text;
    }
    f->args.push_back(std::move(e));
    if (is_op("(")) PF_TRY(call_args(*f));
    PF_ASSIGN(e, done(std::move(f)));
  }
  return e;
}

Result<ExprPtr> Parser::test(ExprPtr e) {
  const int line = take().line;
  const bool negated = skip_name("not");
  if (now().type != Tok::name) return unexpected("the name of a test");
  ExprPtr t = node(Ex::test, line);
  t->text = take().text;
  t->args.push_back(std::move(e));
  const Tok type = now().type;
  const bool starts_value = type == Tok::name || type == Tok::string || type == Tok::integer ||
                            type == Tok::real || is_op("[") || is_op("{");
  if (is_op("(")) {
    PF_TRY(call_args(*t));
  } else if (starts_value && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) return fail("tests cannot be chained with 'is'");
    PF_ASSIGN(ExprPtr arg, primary());
    PF_ASSIGN(arg, postfix(std::move(arg)));
    t->args.push_back(std::move(arg));
  }
  PF_ASSIGN(t, done(std::move(t)));
  if (!negated) return t;
  ExprPtr n = node(Ex::not_, line);
  n->args.push_back(std::move(t));
  return done(std::move(n));
}

Status Parser::call_args(Expr& call) {
  PF_TRY(expect_op("("));
  bool first = true;
  while (!is_op(")")) {
    if (!first) {
      PF_TRY(expect_op(","));
      if (is_op(")")) break;
    }
    first = false;
    if (is_op("*") || is_op("**")) {
      ExprPtr& slot = is_op("*") ? call.star : call.star_star;
      if (slot || call.star_star) return fail("misplaced '*' in a call");
      take();
      PF_ASSIGN(slot, expression());
    } else if (now().type == Tok::name && next().type == Tok::op && next().text == "=") {
      if (call.star_star) return fail("an argument follows '**'");
      std::string name = take().text;
      take();
      PF_ASSIGN(ExprPtr value, expression());
      call.keywords.push_back({std::move(name), std::move(value)});
    } else {
      if (!call.keywords.empty() || call.star || call.star_star) {
        return fail("a positional argument follows a named one");
      }
      PF_ASSIGN(ExprPtr value, expression());
      call.args.push_back(std::move(value));
    }
  }
  take();
  return ok_status();
}

}  // namespace pagefold::jinja
