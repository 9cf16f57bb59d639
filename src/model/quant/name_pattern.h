// What names a module in a quantisation config: a dotted name, a class, or a regular expression.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

// What all names and patterns of a config may cost together, about a second, however many there
// are. Counted in units of some 30 ns.
class PatternWork {
 public:
  // False: there is not that much left.
  bool take(int64_t units) { return left_.fetch_sub(units) >= units; }

 private:
  std::atomic<int64_t> left_ = int64_t{32} << 20;
};

// A regular expression that must match from the beginning of a name (as Python's re.match). The
// work of a match is bounded: a pattern that reaches the bound is an error.
class NamePattern {
 public:
  // Over 4 KiB or not a pattern: an error that names it.
  static Result<NamePattern> compile(std::string_view pattern, PatternWork& work);
  Result<bool> matches(std::string_view name, PatternWork& work) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

// entry is the name or a run of whole components of it: "mlp" and "layers.1" are in
// "model.layers.1.mlp.up_proj", "layers.1" is not in "model.layers.10.mlp.up_proj".
bool names_part_of(std::string_view entry, std::string_view name);

// An entry of a list: "re:PATTERN", else a name by names_part_of.
class ModuleMatcher {
 public:
  static Result<ModuleMatcher> parse(std::string_view entry, std::shared_ptr<PatternWork> work);
  Result<bool> matches(std::string_view module) const;

 private:
  std::string name_;
  std::shared_ptr<const NamePattern> pattern_;
  std::shared_ptr<PatternWork> work_;
};

}  // namespace pagefold
