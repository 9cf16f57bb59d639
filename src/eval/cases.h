// Questions with answers that can be checked: made from a seed, or read from a file. Pure: no model
// is needed but a count of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pagefold::eval {

struct Case {
  std::string question;  // one user turn
  std::string group;     // for tables: "512 tokens, middle"
  Json expected;         // what the task's grade() wants to see
};

struct Grade {
  double score = 0;    // 1: right; a share where parts are asked for
  bool parsed = true;  // an answer of the wanted form was found; without one the score is 0
  Json detail = {};    // further figures, or empty
};

using CountTokens = std::function<int64_t(std::string_view)>;

// --- needle: numbers hidden among made-up sentences ---
// Case i has context contexts[i % n] tokens and its first needle at the start, middle or end in
// turn; the others are spread over the rest. The score is the share of the numbers in the answer.
std::vector<Case> needle_cases(uint64_t seed, int64_t count, const std::vector<int64_t>& contexts,
                               int64_t needles, const CountTokens& tokens);
// --- passkey: five digits in a text that repeats itself, at depths spread evenly ---
std::vector<Case> passkey_cases(uint64_t seed, int64_t count, const std::vector<int64_t>& contexts,
                                const CountTokens& tokens);
// Of both: expected is a list of numbers as text. A number counts when it stands alone: not within
// a longer one.
Grade grade_numbers(const Json& expected, std::string_view answer);

// --- state_query: a depth-first search followed by hand (docs/quality.md) ---
struct Graph {
  int nodes = 0;
  std::vector<std::pair<int, int>> edges;
};
struct SearchState {
  int current = -1;          // -1: the stack is empty
  std::vector<int> stack;    // root first
  std::vector<int> visited;  // ascending
};
// After `steps` steps from `start`: each goes to the smallest neighbour not yet visited, else one
// back. Beyond the end nothing changes.
SearchState search(const Graph& graph, int start, int64_t steps);
std::string state_question(const Graph& graph, int start, int64_t steps);
// 10 to 30 nodes; trees and sparse small-world graphs; step counts spread evenly over [1, 30].
std::vector<Case> state_cases(uint64_t seed, int64_t count);
// A JSON list of {graph: {nodes, edges}, start_node, steps, answer: {current_node, stack,
// visited_nodes}}: at most `count` of them. Answers that the search contradicts are an error.
Result<std::vector<Case>> read_state_cases(std::string_view text, int64_t count);
// Right when node, stack and set of visited nodes are all equal. detail: {"node", "stack",
// "visited_f1"}.
Grade grade_state(const Json& expected, std::string_view answer);

// --- qa: a question and a number, in GSM8K's form ---
// JSON lines {"question", "answer"}, the number behind the answer's last "####". The last `shots`
// lines are worked examples before every question, and never asked.
Result<std::vector<Case>> read_qa_cases(std::string_view text, int64_t count, int64_t shots);
// The number behind the last "####", else the last number of the text; commas, currency and a full
// stop at its end do not count. nullopt: none.
std::optional<double> final_number(std::string_view text);
Grade grade_qa(const Json& expected, std::string_view answer);

}  // namespace pagefold::eval
