// The parsed template. One node type for expressions and one for statements keeps walking simple.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace pagefold::jinja {

enum class Ex : uint8_t {
  literal,    // value
  name,       // symbol
  list,       // args
  tuple,      // args
  dict,       // args: key, value, key, value ...
  attribute,  // args[0] . text
  subscript,  // args[0] [ args[1] ]
  slice,      // args[0] [ args[1] : args[2] : args[3] ], absent ones null
  call,       // args[0] ( args[1...], keywords )
  filter,     // args[0] | text ( args[1...], keywords ); args[0] null in filter blocks
  test,       // args[0] is text ( args[1...], keywords )
  negate,
  plus,
  not_,
  chain,    // args[0] ops[0] args[1] ops[1] ...: + - or * / // % or **, left to right
  concat,   // args ~ args
  compare,  // args[0] ops[0] args[1] ...
  and_,
  or_,     // args
  choose,  // args[0] if args[1] else args[2] (may be null)
};

enum class Op : uint8_t {
  add,
  sub,
  mul,
  div,
  floor_div,
  mod,
  pow,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  in,
  not_in
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Keyword {
  std::string name;
  ExprPtr value;
};

struct Expr {
  Ex kind = Ex::literal;
  int line = 0;
  int height = 1;  // longest way down; limited by the parser
  int symbol = -1;
  std::string text;
  Value value;
  std::vector<ExprPtr> args;
  std::vector<Op> ops;
  std::vector<Keyword> keywords;
  ExprPtr star, star_star;  // *list and **dict of a call
};

// What a statement assigns to: a name, namespace.attribute, or a tuple of targets.
struct Target {
  int symbol = -1;
  std::string attribute;
  std::vector<Target> parts;
  bool is_tuple = false;
};

enum class St : uint8_t {
  data,       // text
  print,      // expr
  if_,        // branches, orelse
  for_,       // target, expr, cond, body, orelse
  set,        // target = expr
  set_block,  // target = body | filter
  macro,      // symbol, params, body
  call,       // expr (a call), params, body
  filter,     // expr (filters with a null innermost), body
  with,       // targets, values, body
  group,      // body (generation)
  break_,
  continue_
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

struct Param {
  int symbol = -1;
  std::string name;
  ExprPtr fallback;  // null: none
};

// What macros and call blocks have in common; kept alive by macro values.
struct Callee {
  std::string name;
  std::vector<Param> params;
  Block body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Stmt {
  St kind = St::data;
  int line = 0;
  std::string text;
  ExprPtr expr, cond;
  Target target;
  std::vector<std::pair<Target, ExprPtr>> assigns;
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block body, orelse;
  std::unique_ptr<Callee> callee;
  int symbol = -1;
};

// Symbols are indexes into `names`.
struct Program {
  Block body;
  std::vector<std::string> names;
};

}  // namespace pagefold::jinja
