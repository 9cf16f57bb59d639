// The kinds of flags, made of CLI11's parts. Only args*.cpp include it: CLI11 is heavy.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/kv_format.h"
#include "cli/command.h"
#include "cli/numbers.h"

namespace pagefold {

[[noreturn]] inline void reject(const std::string& flag, const Status& why) {
  throw CLI::ValidationError(flag, message_of(why));
}

using Text = const std::string&;

// Every scalar flag goes through here: the last one of several wins, as in vLLM.
template <class F>
CLI::Option* flag(CLI::App& app, const std::string& names, const std::string& help, F set) {
  const size_t dashes = names.find("--");  // none: a positional argument
  const std::string shown =
      dashes == std::string::npos ? names : names.substr(dashes, names.find(',', dashes) - dashes);
  return app
      .add_option_function<std::string>(
          names,
          [shown, set](Text text) {
            if (const Status s = set(text); !s.ok()) reject(shown, s);
          },
          help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("");
}

template <class T>
Status read_integer(Text text, int64_t low, int64_t high, T& out) {
  PF_ASSIGN(const int64_t value, parse_integer(text, low, high));
  out = static_cast<T>(value);
  return ok_status();
}

template <class T>
CLI::Option* integer(CLI::App& app, const std::string& names, T& out, int64_t low, int64_t high,
                     const std::string& help) {
  return flag(app, names, help,
              [&out, low, high](Text text) { return read_integer(text, low, high, out); });
}

// k/m/g/t and K/M/G/T are understood.
template <class T>
CLI::Option* count(CLI::App& app, const std::string& names, T& out, uint64_t low,
                   const std::string& help, T high = std::numeric_limits<T>::max()) {
  return flag(app, names, help, [&out, low, high](Text text) -> Status {
    PF_ASSIGN(const uint64_t value, parse_human_count(text, low, static_cast<uint64_t>(high)));
    out = static_cast<T>(value);
    return ok_status();
  });
}

template <class T>
CLI::Option* real(CLI::App& app, const std::string& names, T& out, double low, double high,
                  bool low_open, const std::string& help) {
  return flag(app, names, help, [&out, low, high, low_open](Text text) -> Status {
    PF_ASSIGN(const double value, parse_real(text));
    if (value < low || value > high || (low_open && value <= low)) {
      return bad_input("{}: must lie in {}{}, {}]", value, low_open ? '(' : '[', low, high);
    }
    out = static_cast<T>(value);
    return ok_status();
  });
}

inline CLI::Option* word(CLI::App& app, const std::string& names, std::string& out,
                         std::vector<std::string> allowed, const std::string& help) {
  std::string list;
  for (const std::string& a : allowed) list += (list.empty() ? "" : ", ") + a;
  return flag(app, names, help + " {" + list + "}", [&out, allowed, list](Text text) -> Status {
    if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
      return bad_input("'{}' is none of: {}", text, list);
    }
    out = text;
    return ok_status();
  });
}

inline CLI::Option* text_flag(CLI::App& app, const std::string& names, std::string& out,
                              const std::string& help) {
  return flag(app, names, help, [&out](Text text) {
    out = text;
    return ok_status();
  });
}

inline void switch_flag(CLI::App& app, const std::string& name, bool& out,
                        const std::string& help) {
  app.add_flag("--" + name + ",!--no-" + name, out, help);
}

inline void add_model(CLI::App& app, std::string& model) {
  // An empty name is an unset variable of a script, not a wish for the default model.
  const auto set = [&model](Text text) -> Status {
    if (text.empty()) return bad_input("the name is empty; leave it out for the default model");
    model = text;
    return ok_status();
  };
  auto* positional = flag(app, "model",
                          "a .gguf file, a model folder, or the name of a pulled model; none = the "
                          "default model",
                          set);
  positional->type_name("MODEL");
  flag(app, "-m,--model", "the same as the positional MODEL", set)->excludes(positional);
}

inline void add_json(CLI::App& app, bool& json, const std::string& help = "print one JSON object") {
  switch_flag(app, "json", json, help);
}

inline void add_seed(CLI::App& app, uint64_t& seed, const std::string& help) {
  flag(app, "-s,--seed", help, [&seed](Text text) -> Status {
    PF_ASSIGN(const int64_t value, parse_integer(text));
    seed = static_cast<uint64_t>(value);
    return ok_status();
  });
}

inline void kv_group_flag(CLI::App& app, int& group) {
  flag(app, "--kv-cache-group",
       "elements that share a scale in int8 and int4: 0 = a head, 32, auto = 32 for int4 keys",
       [&group](Text text) -> Status {
         if (text == "auto") {
           group = kAutoKvGroup;
           return ok_status();
         }
         const auto value = parse_integer(text);
         if (!value.ok() || (*value != 0 && *value != 32))
           return bad_input("'{}': must be auto, 0 or 32", text);
         group = static_cast<int>(*value);
         return ok_status();
       });
}

// --config (args_config.cpp). places: where each flag stands that the file sets, "FILE:LINE".
using ConfigPlaces = std::map<std::string, std::string>;
void add_config(CLI::App& app, ConfigPlaces& places);
// What an engine is made of (args.cpp).
// packing: the ways that the subcommand permits, for --help.
void add_engine(CLI::App& app, EngineOptions& options,
                const std::string& packing = "order, fill, block, off");
// The subcommand `serve` (args_serve.cpp).
void add_serve(CLI::App& app, ServeCommand& command);
// The subcommand `eval` (args_eval.cpp).
void add_eval(CLI::App& app, EvalCommand& command);
// The subcommand `run-batch` (args_serve.cpp).
void add_run_batch(CLI::App& app, RunBatchCommand& command);
// The subcommand `quantize` (args_quantize.cpp).
void add_quantize(CLI::App& app, QuantizeCommand& command);
// The subcommand `calc` (args_calc.cpp).
void add_calc(CLI::App& app, CalcCommand& command);

// The subcommand `bench` (args_bench.cpp).
void add_bench(CLI::App& app, BenchCommand& command);

}  // namespace pagefold
