// Runs a parsed template. Filters, tests, methods and functions call back into it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja/ast.h"

namespace pagefold::jinja {

// Arguments of a call. Natives take them by place or name, then check that none is left.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at this place or of this name; null when not given.
  const Value* get(size_t place, std::string_view name) const;
  // Fails on more than `most` positional arguments or a name that is not listed.
  Status only(std::string_view what, size_t most,
              std::initializer_list<std::string_view> names = {}) const;
};

class Interp;
using Native = Result<Value> (*)(Interp&, const Args&);
using Filter = Result<Value> (*)(Interp&, const Value&, const Args&);
using Test = Result<bool> (*)(Interp&, const Value&, const Args&);

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> vars;
  const Value* find_here(int symbol) const;
};

struct Function final : Special {
  Function(std::string_view n, Native f) : Special(Type::function, nullptr, 0), name(n), run(f) {}
  std::string_view name;
  Native run;
};

using Method = Result<Value> (*)(Interp&, const Value& self, const Args&);
struct BoundMethod final : Special {
  BoundMethod(Value s, Method f, Meter* m)
      : Special(Type::method, m, 96), self(std::move(s)), run(f) {
    depth = depth_of(self) + 1;
  }
  Value self;
  Method run;
};

struct Macro final : Special {
  Macro(const Callee* c, std::shared_ptr<Scope> s, Meter* m)
      : Special(Type::macro, m, 512), callee(c), scope(std::move(s)) {}
  const Callee* callee;
  mutable std::shared_ptr<Scope> scope;
};

struct Space final : Special {
  explicit Space(Meter* m) : Special(Type::space, m, 128) {}
  mutable std::vector<std::pair<std::string, Value>> attributes;
};

struct Joiner final : Special {
  Joiner(Value s, Meter* m) : Special(Type::joiner, m, 96), separator(std::move(s)) {
    depth = depth_of(separator) + 1;
  }
  Value separator;
  mutable bool used = false;
};

struct Cycler final : Special {
  Cycler(std::vector<Value> v, Meter* m)
      : Special(Type::cycler, m, 96 + v.size() * sizeof(Value)), items(std::move(v)) {
    for (const Value& item : items) depth = std::max(depth, depth_of(item) + 1);
  }
  std::vector<Value> items;
  mutable size_t at = 0;
};

// The `loop` variable. With a condition the items are tested only as they are needed, as in Jinja:
// the condition may read what the body changes.
struct Loop final : Special, std::enable_shared_from_this<Loop> {
  explicit Loop(Meter* m) : Special(Type::loop, m, 256) {}
  std::function<Result<bool>(const Value&)> keep;  // null: every item
  Value source;
  mutable size_t next_source = 0;
  mutable std::vector<Value> seen;  // items that passed, up to one or all ahead
  mutable size_t index0 = 0;
  mutable std::optional<std::vector<Value>> last_changed;
  int depth0 = 0;

  std::shared_ptr<const Loop> shared() const { return shared_from_this(); }
  // Makes seen[i] exist if the loop gets that far.
  Result<bool> reach(Interp& in, size_t i) const;
};

class Interp {
 public:
  Interp(const Program& program, const TemplateLimits& limits);
  ~Interp();
  Result<std::string> run(const Json& context);

  Heap& heap() { return heap_; }
  const TemplateLimits& limits() const { return limits_; }

  Result<Value> call(const Value& callee, const Args& args);
  // x.name and x[key] of the language; a missing one is an undefined value.
  Result<Value> attribute(const Value& v, const std::string& name);
  Result<Value> subscript(const Value& v, const Value& key);
  Result<Value> apply_filter(const std::string& name, const Value& v, const Args& args);
  Result<bool> apply_test(const std::string& name, const Value& v, const Args& args);
  // The items a for loop sees: elements, keys of a dict, characters of a string.
  Result<std::vector<Value>> iterate(const Value& v);
  Value make_special(std::shared_ptr<const Special> s) { return Value(Kind::object, std::move(s)); }
  Result<Value> make_space(std::vector<std::pair<std::string, Value>> attributes);

 private:
  enum class Flow : uint8_t { next, break_loop, continue_loop };
  // One level of C++ recursion; every path that recurses on template input passes through one.
  struct Level {
    explicit Level(Interp& i) : in(i) { ++in.depth_; }
    ~Level() { --in.depth_; }
    Status check() const;
    Interp& in;
  };

  // interp_expr.cpp
  Result<Value> eval(const Expr& e);
  Result<Value> eval_kind(const Expr& e);
  Result<Value> eval_chain(const Expr& e);
  Result<Value> eval_compare(const Expr& e);
  Result<Value> eval_dict(const Expr& e);
  Result<Value> eval_slice(const Expr& e);
  Result<Value> eval_call(const Expr& e, const Value* caller);
  Result<Value> eval_filter(const Expr& e, const Value* innermost);
  Result<Args> eval_args(const Expr& e);
  Result<Value> loop_attribute(const Loop& loop, const std::string& name);

  // interp_stmt.cpp
  Result<Flow> exec(const Block& block);
  Result<Flow> exec_one(const Stmt& s);
  Result<Flow> exec_if(const Stmt& s);
  Result<Flow> exec_for(const Stmt& s);
  Result<Flow> exec_loop(const Stmt& s, const Loop& loop, const Value& loop_value);
  Status exec_set(const Stmt& s);
  Result<Flow> exec_with(const Stmt& s);
  Result<std::string> capture(const Block& block);
  Status emit(std::string_view text);
  Status assign(const Target& t, const Value& v);
  void define(int symbol, const Value& v);
  const Value* lookup(int symbol) const;
  Result<Value> make_macro(const Callee& callee);
  Result<Value> call_macro(const Macro& m, const Args& args);
  Status bind(const Macro& m, const Args& args);
  void push_scope();

  const Program& program_;
  TemplateLimits limits_;
  Heap heap_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  size_t captured_ = 0;  // bytes in all outputs being written
  int depth_ = 0;
  int max_depth_;
  int loop_depth_ = 0;
  // Whatever can hold cycles is emptied at the end.
  std::vector<std::shared_ptr<const Space>> spaces_;
  std::vector<std::shared_ptr<const Macro>> macros_;
  std::vector<std::shared_ptr<Scope>> held_scopes_;
};

// Marks a status that raise_exception made.
inline constexpr const char* kRaised = "pagefold/raised";

// The tables; null when the name is unknown.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
Method find_method(const Value& self, std::string_view name);
const std::vector<std::pair<std::string_view, Value>>& global_functions();

}  // namespace pagefold::jinja
