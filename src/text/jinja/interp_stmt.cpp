#include "text/jinja/interp.h"
#include "text/jinja/ops.h"
#include "text/jinja/utf8.h"

namespace pagefold::jinja {

Status Interp::Level::check() const {
  if (in.depth_ <= in.max_depth_) return ok_status();
  return exhausted("the template recurses too deep (limit {} levels)", in.max_depth_);
}

Interp::Interp(const Program& program, const TemplateLimits& limits)
    : program_(program),
      limits_(limits),
      heap_(2 * limits.max_output_bytes, limits.max_steps),
      max_depth_(12 * limits.max_depth) {}

Interp::~Interp() {
  // Chains of namespaces and closures are cut link by link: freeing them never recurses deeply.
  scope_.reset();
  for (const auto& m : macros_) held_scopes_.push_back(std::move(m->scope));
  for (const auto& s : spaces_) s->attributes.clear();
  for (const auto& s : held_scopes_) {
    if (s) s->vars.clear();
  }
  for (const auto& s : held_scopes_) {
    if (s) s->parent.reset();
  }
}

const Value* Scope::find_here(int symbol) const {
  for (const auto& [s, v] : vars) {
    if (s == symbol) return &v;
  }
  return nullptr;
}

const Value* Interp::lookup(int symbol) const {
  for (const Scope* s = scope_.get(); s; s = s->parent.get()) {
    if (const Value* v = s->find_here(symbol)) return v;
  }
  return nullptr;
}

void Interp::define(int symbol, const Value& v) {
  for (auto& [s, old] : scope_->vars) {
    if (s == symbol) {
      old = v;
      return;
    }
  }
  scope_->vars.emplace_back(symbol, v);
}

void Interp::push_scope() {
  auto s = std::make_shared<Scope>();
  s->parent = scope_;
  scope_ = std::move(s);
}

Result<std::string> Interp::run(const Json& context) {
  scope_ = std::make_shared<Scope>();
  for (size_t i = 0; i < program_.names.size(); ++i) {
    for (const auto& [name, f] : global_functions()) {
      if (name == program_.names[i]) define(static_cast<int>(i), f);
    }
    if (!context.is_object()) continue;
    const auto it = context.find(program_.names[i]);
    if (it == context.end()) continue;
    auto v = heap_.from_json(*it);
    if (!v.ok()) return with_context(v.status(), "template variable " + program_.names[i]);
    define(static_cast<int>(i), *v);
  }
  std::string out;
  out_ = &out;
  PF_TRY(exec(program_.body).status());
  return out;
}

Status Interp::emit(std::string_view text) {
  PF_TRY(heap_.work(text.size()));
  captured_ += text.size();
  if (captured_ > limits_.max_output_bytes) {
    return exhausted("the template writes more than {} bytes", limits_.max_output_bytes);
  }
  out_->append(text);
  return ok_status();
}

Result<std::string> Interp::capture(const Block& block) {
  std::string text;
  std::string* outer = std::exchange(out_, &text);
  const auto flow = exec(block);
  out_ = outer;
  captured_ -= text.size();
  if (!flow.ok()) return flow.status();
  return text;
}

Result<Interp::Flow> Interp::exec(const Block& block) {
  const Level level(*this);
  PF_TRY(level.check());
  for (const auto& s : block) {
    PF_TRY(heap_.step());
    auto flow = exec_one(*s);
    if (!flow.ok()) {
      // The innermost line says most; outer statements leave it alone.
      if (message_of(flow.status()).rfind("line ", 0) == 0 ||
          flow.status().GetPayload(kRaised).has_value()) {
        return flow;
      }
      return with_context(flow.status(), fmt::format("line {}", s->line));
    }
    if (*flow != Flow::next) return *flow;
  }
  return Flow::next;
}

Result<Interp::Flow> Interp::exec_one(const Stmt& s) {
  switch (s.kind) {
    case St::data:
      PF_TRY(emit(s.text));
      return Flow::next;
    case St::print: {
      PF_ASSIGN(const Value v, eval(*s.expr));
      if (v.is(Kind::string)) {
        PF_TRY(emit(v.str()));
        return Flow::next;
      }
      PF_ASSIGN(const std::string text, to_str(heap_, v));
      PF_TRY(emit(text));
      return Flow::next;
    }
    case St::if_:
      return exec_if(s);
    case St::for_:
      return exec_for(s);
    case St::set:
    case St::set_block:
      PF_TRY(exec_set(s));
      return Flow::next;
    case St::macro: {
      PF_ASSIGN(const Value m, make_macro(*s.callee));
      define(s.symbol, m);
      return Flow::next;
    }
    case St::call: {
      PF_ASSIGN(const Value caller, make_macro(*s.callee));
      PF_ASSIGN(const Value v, eval_call(*s.expr, &caller));
      PF_ASSIGN(const std::string text, to_str(heap_, v));
      PF_TRY(emit(text));
      return Flow::next;
    }
    case St::filter: {
      push_scope();
      auto text = capture(s.body);
      scope_ = scope_->parent;
      if (!text.ok()) return text.status();
      PF_ASSIGN(const Value v, heap_.str(*std::move(text)));
      PF_ASSIGN(const Value filtered, eval_filter(*s.expr, &v));
      PF_ASSIGN(const std::string shown, to_str(heap_, filtered));
      PF_TRY(emit(shown));
      return Flow::next;
    }
    case St::with:
      return exec_with(s);
    case St::group:
      return exec(s.body);
    case St::break_:
      return Flow::break_loop;
    case St::continue_:
      return Flow::continue_loop;
  }
  return Flow::next;
}

Result<Interp::Flow> Interp::exec_if(const Stmt& s) {
  for (const auto& [cond, body] : s.branches) {
    PF_ASSIGN(const Value v, eval(*cond));
    if (truthy(v)) return exec(body);
  }
  return exec(s.orelse);
}

Result<Interp::Flow> Interp::exec_with(const Stmt& s) {
  std::vector<Value> values;
  for (const auto& [target, expr] : s.assigns) {
    PF_ASSIGN(Value v, eval(*expr));
    values.push_back(std::move(v));
  }
  push_scope();
  const auto run = [&]() -> Result<Flow> {
    for (size_t i = 0; i < values.size(); ++i) PF_TRY(assign(s.assigns[i].first, values[i]));
    return exec(s.body);
  };
  auto flow = run();
  scope_ = scope_->parent;
  return flow;
}

Status Interp::exec_set(const Stmt& s) {
  if (s.kind == St::set) {
    PF_ASSIGN(const Value v, eval(*s.expr));
    return assign(s.target, v);
  }
  push_scope();
  auto text = capture(s.body);
  scope_ = scope_->parent;
  if (!text.ok()) return text.status();
  PF_ASSIGN(Value v, heap_.str(*std::move(text)));
  if (s.expr) {
    PF_ASSIGN(v, eval_filter(*s.expr, &v));
  }
  return assign(s.target, v);
}

Status Interp::assign(const Target& t, const Value& v) {
  if (t.is_tuple) {
    PF_ASSIGN(const std::vector<Value> items, iterate(v));
    if (items.size() != t.parts.size()) {
      return bad_input("cannot unpack {} values into {} names", items.size(), t.parts.size());
    }
    for (size_t i = 0; i < items.size(); ++i) PF_TRY(assign(t.parts[i], items[i]));
    return ok_status();
  }
  if (t.attribute.empty()) {
    define(t.symbol, v);
    return ok_status();
  }
  const Value* space = lookup(t.symbol);
  if (!space || !space->is(Kind::object) || space->special().type != Special::Type::space) {
    return bad_input("cannot set the attribute '{}': '{}' is not a namespace", t.attribute,
                     program_.names[t.symbol]);
  }
  auto& attributes = static_cast<const Space&>(space->special()).attributes;
  for (auto& [name, old] : attributes) {
    if (name == t.attribute) {
      old = v;
      return ok_status();
    }
  }
  attributes.emplace_back(t.attribute, v);
  return ok_status();
}

Result<bool> Loop::reach(Interp& in, size_t i) const {
  while (seen.size() <= i) {
    if (next_source >= source.items().size()) return false;
    PF_TRY(in.heap().step());
    const Value& item = source.items()[next_source++];
    if (keep) {
      PF_ASSIGN(const bool kept, keep(item));
      if (!kept) continue;
    }
    seen.push_back(item);
  }
  return true;
}

Result<Interp::Flow> Interp::exec_for(const Stmt& s) {
  PF_ASSIGN(const Value over, eval(*s.expr));
  PF_ASSIGN(std::vector<Value> items, iterate(over));
  auto loop = std::make_shared<Loop>(heap_.meter());
  PF_ASSIGN(loop->source, heap_.list(std::move(items)));
  loop->depth0 = loop_depth_;
  loop->depth = depth_of(loop->source) + 1;
  if (s.cond) {
    // Evaluated where the loop stands, not inside an iteration.
    loop->keep = [this, &s, where = scope_](const Value& item) -> Result<bool> {
      const auto back = std::exchange(scope_, where);
      push_scope();
      const auto test = [&]() -> Result<bool> {
        PF_TRY(assign(s.target, item));
        PF_ASSIGN(const Value v, eval(*s.cond));
        return truthy(v);
      };
      auto kept = test();
      scope_ = back;
      return kept;
    };
  }
  ++loop_depth_;
  auto flow = exec_loop(s, *loop, make_special(loop));
  --loop_depth_;
  loop->keep = nullptr;  // it holds scopes
  return flow;
}

Result<Interp::Flow> Interp::exec_loop(const Stmt& s, const Loop& loop, const Value& loop_value) {
  const auto outer = scope_;
  size_t i = 0;
  for (;; ++i) {
    PF_TRY(heap_.step());
    loop.index0 = i;
    PF_ASSIGN(const bool more, loop.reach(*this, i));
    if (!more) break;
    push_scope();
    const auto run = [&]() -> Result<Flow> {
      PF_TRY(assign(s.target, loop.seen[i]));
      define(s.symbol, loop_value);
      return exec(s.body);
    };
    auto flow = run();
    scope_ = outer;
    PF_TRY(flow.status());
    if (*flow == Flow::break_loop) break;
  }
  if (i > 0 || s.orelse.empty()) return Flow::next;
  PF_ASSIGN(const bool any, loop.reach(*this, 0));
  if (any) return Flow::next;
  push_scope();
  auto flow = exec(s.orelse);
  scope_ = outer;
  return flow;
}

Result<Value> Interp::make_macro(const Callee& callee) {
  PF_TRY(heap_.room(512));
  auto m = std::make_shared<Macro>(&callee, scope_, heap_.meter());
  macros_.push_back(m);
  return make_special(m);
}

Result<Value> Interp::call_macro(const Macro& m, const Args& args) {
  const Level level(*this);
  PF_TRY(level.check());
  const auto back = std::exchange(scope_, m.scope);
  const int loops = std::exchange(loop_depth_, 0);
  push_scope();
  const auto run = [&]() -> Result<std::string> {
    PF_TRY(bind(m, args));
    return capture(m.callee->body);
  };
  auto text = run();
  scope_ = back;
  loop_depth_ = loops;
  if (!text.ok()) return text.status();
  return heap_.str(*std::move(text));
}

Status Interp::bind(const Macro& m, const Args& args) {
  const Callee& c = *m.callee;
  const auto symbol_of = [&](std::string_view name) {
    for (size_t i = 0; i < program_.names.size(); ++i) {
      if (program_.names[i] == name) return static_cast<int>(i);
    }
    return -1;
  };
  std::vector<bool> used(args.named.size());
  for (size_t i = 0; i < c.params.size(); ++i) {
    const Param& p = c.params[i];
    const Value* given = i < args.positional.size() ? &args.positional[i] : nullptr;
    for (size_t k = 0; k < args.named.size(); ++k) {
      if (args.named[k].first != p.name) continue;
      if (given) return bad_input("macro '{}' got two values for '{}'", c.name, p.name);
      given = &args.named[k].second;
      used[k] = true;
    }
    if (given) {
      define(p.symbol, *given);
    } else if (p.fallback) {
      PF_ASSIGN(const Value v, eval(*p.fallback));
      define(p.symbol, v);
    } else {
      define(p.symbol, heap_.undefined(fmt::format("parameter '{}' was not provided", p.name)));
    }
  }
  if (args.positional.size() > c.params.size() && !c.uses_varargs) {
    return bad_input("macro '{}' takes not more than {} argument(s)", c.name, c.params.size());
  }
  if (c.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = c.params.size(); i < args.positional.size(); ++i) {
      rest.push_back(args.positional[i]);
    }
    PF_ASSIGN(const Value v, heap_.tuple(std::move(rest)));
    define(symbol_of("varargs"), v);
  }
  std::vector<DictObj::Entry> extra;
  bool has_caller = false;
  for (size_t k = 0; k < args.named.size(); ++k) {
    const auto& [name, value] = args.named[k];
    if (used[k]) continue;
    if (c.uses_caller && name == "caller") {
      define(symbol_of("caller"), value);
      has_caller = true;
    } else if (c.uses_kwargs) {
      PF_ASSIGN(Value key, heap_.str(name));
      extra.emplace_back(std::move(key), value);
    } else {
      return bad_input("macro '{}' takes no keyword argument '{}'", c.name, name);
    }
  }
  if (c.uses_caller && !has_caller) {
    define(symbol_of("caller"), heap_.undefined("no caller is defined"));
  }
  if (c.uses_kwargs) {
    PF_ASSIGN(const Value v, heap_.dict(std::move(extra)));
    define(symbol_of("kwargs"), v);
  }
  return ok_status();
}

}  // namespace pagefold::jinja
