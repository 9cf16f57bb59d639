// The cells of a grid and the lines that runs leave for them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "pagefold/options.h"

namespace pagefold::eval {

struct Cell {
  std::string policy, budget, kv_type;  // budget: empty where the policy has none
  bool full() const { return policy == "full"; }
  std::string key() const { return policy + "|" + budget + "|" + kv_type; }
  std::string name() const { return budget.empty() ? policy : policy + " " + budget; }
  // The words of a request, on top of those that all cells have.
  KvOptions words(const KvOptions& common) const;
};

// Types outermost, so that a model is loaded once for each. `full` has one cell a type, and is
// always there: it is what the others are compared with. What is named twice is there once.
std::vector<Cell> make_grid(const std::vector<std::string>& policies,
                            const std::vector<std::string>& budgets,
                            const std::vector<std::string>& kv_types);

// What was measured so far. With a path every line is appended at once, so that a run that was
// stopped goes on where it was; without, lines live in memory alone. The first line holds the
// settings that figures depend on. The file is this object's alone while it lives.
class Results {
 public:
  // kInvalidArgument: the file is of other settings (names the first that differs), or another run
  // writes to it. A last line that was cut short is dropped.
  static Result<Results> open(const std::string& path, const Json& settings);
  // Null: not measured yet.
  const Json* find(const Cell& cell, int64_t sample) const;
  Status add(const Cell& cell, int64_t sample, Json values);
  // Times lie apart from what can be compared.
  Status add_times(const Cell& cell, const Json& times);
  const std::vector<Json>& times(const Cell& cell) const;

 private:
  struct Close {
    void operator()(const int* fd) const;
  };

  Status open_file(const std::string& path);
  Status read(const Json& settings);
  Status append(const Json& line);
  void take(Json line);
  std::string path_;
  std::unique_ptr<int, Close> file_;
  std::map<std::pair<std::string, int64_t>, Json> lines_;
  std::map<std::string, std::vector<Json>> times_;
};

}  // namespace pagefold::eval
