// Functions every template can call.
#include <ctime>

#include "text/jinja/interp.h"
#include "text/jinja/ops.h"
#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

Result<Value> raise_exception(Interp& in, const Args& args) {
  PF_TRY(args.only("raise_exception", 1, {"message"}));
  const Value* message = args.get(0, "message");
  std::string text;
  if (message) {
    PF_ASSIGN(text, to_str(in.heap(), *message));
  }
  Status s(absl::StatusCode::kInvalidArgument, text);
  s.SetPayload(kRaised, absl::Cord());
  return s;
}

Result<Value> range(Interp& in, const Args& args) {
  PF_TRY(args.only("range", 3));
  if (args.positional.empty()) return bad_input("range needs a number");
  for (const Value& v : args.positional) {
    if (v.is_undefined()) return undefined_error(v);
    if (!v.is_int()) return bad_input("range needs integers, got {}", type_name(v));
  }
  const bool one = args.positional.size() == 1;
  const int64_t start = one ? 0 : args.positional[0].i;
  const int64_t stop = args.positional[one ? 0 : 1].i;
  const int64_t step = args.positional.size() > 2 ? args.positional[2].i : 1;
  if (step == 0) return bad_input("the step of range cannot be zero");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  const uint64_t span = empty      ? 0
                        : step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                   : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t count = empty ? 0 : (span - 1) / stride + 1;
  // Jinja's sandbox has the same limit.
  if (count > 100'000) return exhausted("range is limited to 100000 numbers, got {}", count);
  std::vector<Value> items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    items.push_back(Value::integer(start + static_cast<int64_t>(i) * step));
  }
  return in.heap().list(std::move(items), Flavor::range);
}

// dict(mapping or pairs, a=1): what dict() and namespace() both take.
Result<std::vector<DictObj::Entry>> entries_of(Interp& in, const Args& args) {
  std::vector<DictObj::Entry> entries;
  if (args.positional.size() > 1) return bad_input("expected at most one mapping");
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Kind::dict)) {
      entries = from.dict().entries;
    } else {
      PF_ASSIGN(const std::vector<Value> pairs, in.iterate(from));
      for (const Value& pair : pairs) {
        PF_ASSIGN(const std::vector<Value> kv, in.iterate(pair));
        if (kv.size() != 2) return bad_input("expected pairs of key and value");
        entries.emplace_back(kv[0], kv[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) {
    PF_ASSIGN(Value key, in.heap().str(name));
    entries.emplace_back(std::move(key), value);
  }
  return entries;
}

Result<Value> dict(Interp& in, const Args& args) {
  PF_ASSIGN(auto entries, entries_of(in, args));
  return in.heap().dict(std::move(entries));
}

Result<Value> space(Interp& in, const Args& args) {
  PF_ASSIGN(auto entries, entries_of(in, args));
  PF_ASSIGN(const Value once, in.heap().dict(std::move(entries)));
  std::vector<std::pair<std::string, Value>> attributes;
  for (const auto& [key, value] : once.dict().entries) {
    if (!key.is(Kind::string)) return bad_input("the names in a namespace must be strings");
    attributes.emplace_back(key.str(), value);
  }
  return in.make_space(std::move(attributes));
}

Result<Value> joiner(Interp& in, const Args& args) {
  PF_TRY(args.only("joiner", 1, {"sep"}));
  PF_TRY(in.heap().room(256));
  PF_ASSIGN(Value separator, in.heap().str(", "));
  if (const Value* given = args.get(0, "sep")) separator = *given;
  return in.make_special(std::make_shared<Joiner>(std::move(separator), in.heap().meter()));
}

Result<Value> cycler(Interp& in, const Args& args) {
  if (args.positional.empty() || !args.named.empty()) return bad_input("cycler needs items");
  PF_TRY(in.heap().room(256 + args.positional.size() * sizeof(Value)));
  return in.make_special(std::make_shared<Cycler>(args.positional, in.heap().meter()));
}

Result<Value> strftime_now(Interp& in, const Args& args) {
  PF_TRY(args.only("strftime_now", 1, {"format"}));
  const Value* format = args.get(0, "format");
  if (!format || !format->is(Kind::string)) return bad_input("strftime_now needs a format");
  std::tm when{};
  if (in.limits().fixed_time) {
    const auto t = static_cast<std::time_t>(*in.limits().fixed_time);
    gmtime_r(&t, &when);
  } else {
    const std::time_t t = std::time(nullptr);
    localtime_r(&t, &when);
  }
  const std::string& f = format->str();
  if (f.empty()) return in.heap().str("");
  if (f.size() > 256) return exhausted("the format of strftime_now is longer than 256 bytes");
  // Widths such as %999999d would pad without end: a fixed buffer refuses them. The mark tells an
  // empty result from a failure.
  char buffer[2048];
  const size_t n = std::strftime(buffer, sizeof(buffer), (f + "!").c_str(), &when);
  if (n == 0) return exhausted("strftime_now writes too much");
  return in.heap().str(repair_utf8({buffer, n - 1}));
}

}  // namespace

Result<Value> Interp::make_space(std::vector<std::pair<std::string, Value>> attributes) {
  PF_TRY(heap_.room(512 + attributes.size() * 128));
  auto s = std::make_shared<Space>(heap_.meter());
  s->attributes = std::move(attributes);
  spaces_.push_back(s);
  return make_special(s);
}

const std::vector<std::pair<std::string_view, Value>>& global_functions() {
  static const auto* table = [] {
    auto* t = new std::vector<std::pair<std::string_view, Value>>();
    const auto add = [&](std::string_view name, Native f) {
      t->emplace_back(name, Value(Kind::object, std::make_shared<Function>(name, f)));
    };
    add("raise_exception", raise_exception);
    add("range", range);
    add("dict", dict);
    add("namespace", space);
    add("joiner", joiner);
    add("cycler", cycler);
    add("strftime_now", strftime_now);
    return t;
  }();
  return *table;
}

}  // namespace pagefold::jinja
