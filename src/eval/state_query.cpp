// The recursive state query: after k steps of a depth-first search, where is it and what is on the
// stack? The task and its grading follow the description of TriAttention's DFS benchmark (arXiv
// 2604.04921); the generator, its random numbers and the words of the question are ours.
#include <algorithm>
#include <set>

#include "eval/cases.h"
#include "eval/draws.h"

namespace pagefold::eval {
namespace {

constexpr int kFewestNodes = 10, kMostNodes = 30, kMostSteps = 30, kTries = 200;
constexpr int kMostFileNodes = 10000;

std::vector<std::vector<int>> neighbours_of(const Graph& g) {
  std::vector<std::vector<int>> next(static_cast<size_t>(g.nodes));
  for (const auto& [a, b] : g.edges) {
    next[static_cast<size_t>(a)].push_back(b);
    next[static_cast<size_t>(b)].push_back(a);
  }
  for (auto& list : next) std::sort(list.begin(), list.end());
  return next;
}

// Uniform over labelled trees, from a Pruefer sequence.
Graph random_tree(int n, Draws& draws) {
  std::vector<int> code(static_cast<size_t>(n - 2)), degree(static_cast<size_t>(n), 1);
  for (int& c : code) {
    c = static_cast<int>(draws.below(n));
    ++degree[static_cast<size_t>(c)];
  }
  Graph g{n, {}};
  for (const int c : code) {
    const auto leaf = std::find(degree.begin(), degree.end(), 1) - degree.begin();
    g.edges.emplace_back(static_cast<int>(leaf), c);
    degree[static_cast<size_t>(leaf)] = 0;
    --degree[static_cast<size_t>(c)];
  }
  const auto a = std::find(degree.begin(), degree.end(), 1);
  const auto b = std::find(a + 1, degree.end(), 1);
  g.edges.emplace_back(static_cast<int>(a - degree.begin()), static_cast<int>(b - degree.begin()));
  return g;
}

// A ring where each node knows two on either side, and a tenth of the edges lead elsewhere (Watts
// and Strogatz). May be unconnected.
Graph small_world(int n, Draws& draws) {
  std::set<std::pair<int, int>> edges;
  const auto ordered = [](int a, int b) { return std::pair{std::min(a, b), std::max(a, b)}; };
  for (int i = 0; i < n; ++i) {
    for (int j = 1; j <= 2; ++j) edges.insert(ordered(i, (i + j) % n));
  }
  for (int j = 1; j <= 2; ++j) {
    for (int i = 0; i < n; ++i) {
      if (!draws.chance(0.1)) continue;
      const auto to = static_cast<int>(draws.below(n));
      if (to == i || edges.contains(ordered(i, to))) continue;
      if (edges.erase(ordered(i, (i + j) % n)) > 0) edges.insert(ordered(i, to));
    }
  }
  return {n, {edges.begin(), edges.end()}};
}

bool connected(const Graph& g) {
  return static_cast<int>(search(g, 0, 2 * int64_t{g.nodes}).visited.size()) == g.nodes;
}

Json answer_of(const SearchState& s) {
  return {{"current_node", s.current < 0 ? Json(nullptr) : Json(s.current)},
          {"stack", s.stack},
          {"visited_nodes", s.visited}};
}

// The object of the answer: the whole text, a fenced block, the object around "current_node", or
// from the first brace to the last.
std::optional<Json> object_in(std::string_view text) {
  std::vector<std::string_view> places = {text};
  if (const size_t fence = text.find("```"); fence != std::string_view::npos) {
    const size_t begin = text.find('\n', fence), end = text.find("```", fence + 3);
    if (begin != std::string_view::npos && end != std::string_view::npos && begin < end)
      places.push_back(text.substr(begin, end - begin));
  }
  if (const size_t key = text.rfind("\"current_node\""); key != std::string_view::npos) {
    const size_t begin = text.rfind('{', key), end = text.find('}', key);
    if (begin != std::string_view::npos && end != std::string_view::npos)
      places.push_back(text.substr(begin, end + 1 - begin));
  }
  const size_t first = text.find('{'), last = text.rfind('}');
  if (first != std::string_view::npos && last != std::string_view::npos && first < last)
    places.push_back(text.substr(first, last + 1 - first));
  for (const std::string_view place : places) {
    auto json = parse_json(place);
    if (json.ok() && json->is_object()) return *std::move(json);
  }
  return std::nullopt;
}

bool whole_numbers(const Json& list) {
  return list.is_array() &&
         std::all_of(list.begin(), list.end(), [](const Json& v) { return v.is_number_integer(); });
}

Result<Case> read_case(const Json& j, size_t index) {
  const auto wrong = [&](std::string_view what) {
    return bad_data("state_query: case {}: {}", index, what);
  };
  if (!j.is_object() || !j.contains("graph") || !j["graph"].is_object() || !j.contains("steps") ||
      !j["steps"].is_number_integer() || !j.contains("answer") || !j["answer"].is_object())
    return wrong("graph, steps and answer are needed");
  const Json &graph = j["graph"], &answer = j["answer"];
  if (!graph.contains("nodes") || !whole_numbers(graph["nodes"]) || !graph.contains("edges") ||
      !graph["edges"].is_array())
    return wrong("the graph wants lists of nodes and edges");
  Graph g;
  g.nodes = static_cast<int>(std::min<size_t>(graph["nodes"].size(), kMostFileNodes + 1));
  if (g.nodes < 1 || g.nodes > kMostFileNodes) return wrong("too few or too many nodes");
  const auto node = [&](const Json& v) {
    const bool fits = v.is_number_integer() && v >= 0 && v < g.nodes;
    return fits ? v.get<int>() : -1;
  };
  for (const Json& e : graph["edges"]) {
    if (!e.is_array() || e.size() != 2 || node(e[0]) < 0 || node(e[1]) < 0)
      return wrong("an edge is no pair of its nodes");
    g.edges.emplace_back(node(e[0]), node(e[1]));
  }
  const int start = node(j.value("start_node", Json(0)));
  if (start < 0) return wrong("start_node is no node");
  const auto steps = j["steps"].get<int64_t>();
  if (steps < 0 || steps > 4 * int64_t{kMostFileNodes}) return wrong("too many steps");
  Case c;
  c.expected = answer_of(search(g, start, steps));
  for (const auto& [key, value] : c.expected.items()) {
    if (!answer.contains(key) || answer[key] != value)
      return wrong(fmt::format("its {} is not what the search gives", key));
  }
  c.question = state_question(g, start, steps);
  c.group = fmt::format("{} steps", steps);
  return c;
}

}  // namespace

SearchState search(const Graph& graph, int start, int64_t steps) {
  const auto next = neighbours_of(graph);
  std::vector<bool> seen(static_cast<size_t>(graph.nodes), false);
  SearchState s;
  s.stack = {start};
  seen[static_cast<size_t>(start)] = true;
  for (int64_t k = 0; k < steps && !s.stack.empty(); ++k) {
    const auto& around = next[static_cast<size_t>(s.stack.back())];
    const auto to = std::find_if(around.begin(), around.end(),
                                 [&](int v) { return !seen[static_cast<size_t>(v)]; });
    if (to == around.end()) {
      s.stack.pop_back();
      continue;
    }
    seen[static_cast<size_t>(*to)] = true;
    s.stack.push_back(*to);
  }
  s.current = s.stack.empty() ? -1 : s.stack.back();
  for (int v = 0; v < graph.nodes; ++v) {
    if (seen[static_cast<size_t>(v)]) s.visited.push_back(v);
  }
  return s;
}

std::string state_question(const Graph& graph, int start, int64_t steps) {
  std::string nodes, edges;
  for (int v = 0; v < graph.nodes; ++v) nodes += (v == 0 ? "" : ", ") + std::to_string(v);
  for (const auto& [a, b] : graph.edges)
    edges += fmt::format("{}({}, {})", edges.empty() ? "" : ", ", a, b);
  return fmt::format(
      "Here is an undirected graph.\nNodes: {0}\nEdges: {1}\n\n"
      "A depth-first search starts at node {2}. At the beginning the stack is [{2}] and node {2} "
      "counts as visited. Step 1 is the first move. In each step:\n"
      "1. If the node on top of the stack has neighbours that were not visited, go to the one with "
      "the smallest number: mark it as visited and push it.\n"
      "2. If all its neighbours were visited, pop it from the stack.\n"
      "3. The current node is the one on top of the stack.\n\n"
      "After exactly {3} steps: what is the current node, what is on the stack (from the start "
      "node to the current one), and which nodes were visited?\n"
      "First write \"Analysis:\", list the sorted neighbours of each node, and follow every step "
      "with the current node, the stack and the visited nodes. Then write \"Answer:\" and a JSON "
      "object: {{\"current_node\": N, \"stack\": [...], \"visited_nodes\": [...]}}",
      nodes, edges, start, steps);
}

std::vector<Case> state_cases(uint64_t seed, int64_t count) {
  std::vector<Case> out;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t steps = count < 2 ? kMostSteps / 2 : 1 + (kMostSteps - 1) * i / (count - 1);
    Draws draws(seed, i);
    Graph g;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const int n = kFewestNodes + static_cast<int>(draws.below(kMostNodes - kFewestNodes + 1));
      g = draws.chance(0.5) ? random_tree(n, draws) : small_world(n, draws);
      // The root is still on the stack then: each other node was pushed, and popped, once.
      if (connected(g) && steps <= 2 * (int64_t{n} - 1)) break;
    }
    Case c;
    c.question = state_question(g, 0, steps);
    c.expected = answer_of(search(g, 0, steps));
    c.group = fmt::format("{} steps", steps);
    out.push_back(std::move(c));
  }
  return out;
}

Result<std::vector<Case>> read_state_cases(std::string_view text, int64_t count) {
  PF_ASSIGN(const Json all, parse_json(text));
  if (!all.is_array() || all.empty()) return bad_data("state_query: no list of cases");
  std::vector<Case> out;
  for (const Json& j : all) {
    if (static_cast<int64_t>(out.size()) == count) break;
    PF_ASSIGN(Case c, read_case(j, out.size()));
    out.push_back(std::move(c));
  }
  return out;
}

Grade grade_state(const Json& expected, std::string_view answer) {
  Grade g;
  const std::optional<Json> found = object_in(answer);
  g.parsed = found && found->contains("current_node") && found->contains("stack") &&
             found->contains("visited_nodes") && whole_numbers((*found)["stack"]) &&
             whole_numbers((*found)["visited_nodes"]);
  if (!g.parsed) {
    g.detail = {{"node", 0}, {"stack", 0}, {"visited_f1", 0}};
    return g;
  }
  const auto set_of = [](const Json& list) {
    std::set<int64_t> out;
    for (const Json& v : list) out.insert(v.get<int64_t>());
    return out;
  };
  const bool node = (*found)["current_node"] == expected["current_node"];
  const bool stack = (*found)["stack"] == expected["stack"];
  const std::set<int64_t> want = set_of(expected["visited_nodes"]),
                          have = set_of((*found)["visited_nodes"]);
  const auto common =
      std::count_if(have.begin(), have.end(), [&](int64_t v) { return want.contains(v); });
  const double f1 =
      2 * static_cast<double>(common) / static_cast<double>(want.size() + have.size());
  g.score = node && stack && want == have ? 1 : 0;
  g.detail = {{"node", node ? 1 : 0}, {"stack", stack ? 1 : 0}, {"visited_f1", f1}};
  return g;
}

}  // namespace pagefold::eval
