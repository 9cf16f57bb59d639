#include "grammar/network.h"

#include <algorithm>
#include <map>
#include <optional>

namespace pagefold::grammar {
namespace {

constexpr NodeId kNone = 0xFFFFFFFF;
constexpr uint8_t kNever = 0xFF;
static_assert(Network::kMaxDepth < kNever);

struct RawByte {
  NodeId from, to;
  uint32_t set;
};
struct RawEmpty {
  NodeId from, to;
};
struct RawCall {
  NodeId from, back;
  RuleId rule;
  bool tail = false;
};

// Rows of edge numbers by one of their ends.
class Index {
 public:
  template <class Edges, class Key>
  Index(const Edges& edges, size_t nodes, Key key) : begin_(nodes + 1, 0), at_(edges.size()) {
    for (const auto& e : edges) ++begin_[key(e) + 1];
    for (size_t i = 0; i < nodes; ++i) begin_[i + 1] += begin_[i];
    std::vector<uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (uint32_t i = 0; i < edges.size(); ++i) at_[next[key(edges[i])]++] = i;
  }
  std::span<const uint32_t> of(size_t node) const {
    return {at_.data() + begin_[node], at_.data() + begin_[node + 1]};
  }

 private:
  std::vector<uint32_t> begin_, at_;
};

}  // namespace

class NetworkBuilder {
 public:
  NetworkBuilder(const Grammar& grammar, RuleId root) : g_(grammar), root_(root) {}

  Result<Network> build() {
    rules_ = g_.rules();
    start_.assign(rules_.size(), kNone);
    end_.assign(rules_.size(), kNone);
    visit(root_);
    while (!work_.empty() && !too_large()) {
      const RuleId rule = work_.back();
      work_.pop_back();
      const ExprId body = rules_[static_cast<size_t>(rule)];
      if (body < 0) return bad_input("a rule is used and not defined");
      emit(body, start_[static_cast<size_t>(rule)], end_[static_cast<size_t>(rule)]);
    }
    if (g_.full() || too_large()) {
      return bad_input("it is too large: more than {} parts", Network::kMaxNodes);
    }
    final_.assign(n_nodes_, false);
    for (const NodeId end : end_) {
      if (end != kNone) final_[end] = true;
    }
    mark_tails();
    PF_TRY(refuse_left_recursion());
    compute_need();
    if (need_[start_[static_cast<size_t>(root_)]] == kNever) {
      return bad_input("no text of at most {} nested parts matches", Network::kMaxDepth);
    }
    return finish();
  }

 private:
  bool too_large() const {
    return n_nodes_ + bytes_.size() + calls_.size() + empties_.size() > 4 * Network::kMaxNodes ||
           n_nodes_ > Network::kMaxNodes;
  }
  NodeId node() { return static_cast<NodeId>(n_nodes_++); }

  void visit(RuleId rule) {
    const auto r = static_cast<size_t>(rule);
    if (start_[r] != kNone) return;
    start_[r] = node();
    end_[r] = node();
    work_.push_back(rule);
  }

  void emit(ExprId id, NodeId from, NodeId to) {
    if (too_large()) return;
    const Expr& e = g_[id];
    switch (e.kind) {
      case Expr::Kind::never:
        return;
      case Expr::Kind::empty:
        empties_.push_back({from, to});
        return;
      case Expr::Kind::bytes:
        bytes_.push_back({from, to, static_cast<uint32_t>(e.index)});
        return;
      case Expr::Kind::rule:
        visit(e.index);
        calls_.push_back({from, to, e.index});
        return;
      case Expr::Kind::alt:
        for (const ExprId part : e.parts) emit(part, from, to);
        return;
      case Expr::Kind::seq:
        for (size_t i = 0; i < e.parts.size(); ++i) {
          const NodeId next = i + 1 == e.parts.size() ? to : node();
          emit(e.parts[i], from, next);
          from = next;
        }
        return;
      case Expr::Kind::repeat:
        return emit_repeat(e, from, to);
    }
  }

  // No edge is ever added into `from` or out of `to`, so that both may be shared.
  void emit_repeat(const Expr& e, NodeId from, NodeId to) {
    const ExprId part = e.parts[0];
    const Expr::Kind kind = g_[part].kind;
    const bool once = e.min == 0 && (e.max == 1 || e.max == kUnbounded);
    const bool small = kind == Expr::Kind::bytes || kind == Expr::Kind::rule;
    // Copies of anything larger are calls of a rule of their own.
    const RuleId rule = once || small ? -1 : wrapped(part);
    const auto copy = [&](NodeId a, NodeId b) {
      if (rule < 0) return emit(part, a, b);
      calls_.push_back({a, b, rule});
    };
    for (int i = 0; i < e.min && !too_large(); ++i) {
      const NodeId next = i + 1 == e.max ? to : node();
      copy(from, next);
      from = next;
    }
    if (e.max == kUnbounded) {
      const NodeId loop = node();
      empties_.push_back({from, loop});
      copy(loop, loop);
      empties_.push_back({loop, to});
      return;
    }
    for (int i = e.min; i < e.max && !too_large(); ++i) {
      empties_.push_back({from, to});
      const NodeId next = i + 1 == e.max ? to : node();
      copy(from, next);
      from = next;
    }
  }

  RuleId wrapped(ExprId part) {
    const auto [it, fresh] = wrapped_.try_emplace(part, static_cast<RuleId>(rules_.size()));
    if (fresh) {
      rules_.push_back(part);
      start_.push_back(kNone);
      end_.push_back(kNone);
    }
    visit(it->second);
    return it->second;
  }

  // A call whose way back can only return needs no memory of it.
  void mark_tails() {
    std::vector<bool> reads(n_nodes_, false);
    for (const auto& e : bytes_) reads[e.from] = true;
    for (const auto& e : calls_) reads[e.from] = true;
    const Index out(empties_, n_nodes_, [](const RawEmpty& e) { return e.from; });
    for (RawCall& call : calls_) {
      NodeId at = call.back;
      for (int hops = 0; hops < 8 && !reads[at] && !final_[at]; ++hops) {
        const auto next = out.of(at);
        if (next.size() != 1) break;
        at = empties_[next[0]].to;
      }
      call.tail = !reads[at] && final_[at] && out.of(at).empty();
    }
  }

  // Nodes from which the end of the rule is reached without reading.
  std::vector<bool> nullable_nodes() const {
    std::vector<bool> known(n_nodes_, false);
    const Index empty_in(empties_, n_nodes_, [](const RawEmpty& e) { return e.to; });
    const Index call_in(calls_, n_nodes_, [](const RawCall& e) { return e.back; });
    const Index by_start(calls_, n_nodes_, [this](const RawCall& e) { return start_of(e.rule); });
    std::vector<NodeId> work;
    const auto mark = [&](NodeId n) {
      if (!known[n]) work.push_back(n);
      known[n] = true;
    };
    for (NodeId n = 0; n < n_nodes_; ++n) {
      if (final_[n]) mark(n);
    }
    while (!work.empty()) {
      const NodeId n = work.back();
      work.pop_back();
      for (const uint32_t e : empty_in.of(n)) mark(empties_[e].from);
      for (const uint32_t e : call_in.of(n)) {
        if (known[start_of(calls_[e].rule)]) mark(calls_[e].from);
      }
      for (const uint32_t e : by_start.of(n)) {
        if (known[calls_[e].back]) mark(calls_[e].from);
      }
    }
    return known;
  }

  NodeId start_of(RuleId rule) const { return start_[static_cast<size_t>(rule)]; }

  // Nodes reached before anything is read; a circle through a call is left recursion. One depth
  // first search over all nodes, where a call is an edge to the rule's start and, if the rule may
  // be empty, one to the way back.
  Status refuse_left_recursion() const {
    const std::vector<bool> nullable = nullable_nodes();
    const Index empty_out(empties_, n_nodes_, [](const RawEmpty& e) { return e.from; });
    const Index call_out(calls_, n_nodes_, [](const RawCall& e) { return e.from; });
    // Rules as nodes: an edge to each rule that can be called first.
    std::vector<std::vector<RuleId>> first(rules_.size());
    std::vector<uint32_t> seen(n_nodes_, 0);
    std::vector<NodeId> work;
    for (size_t r = 0; r < rules_.size(); ++r) {
      if (start_[r] == kNone) continue;
      const auto stamp = static_cast<uint32_t>(r + 1);
      const auto mark = [&](NodeId n) {
        if (seen[n] != stamp) work.push_back(n);
        seen[n] = stamp;
      };
      mark(start_[r]);
      while (!work.empty()) {
        const NodeId n = work.back();
        work.pop_back();
        for (const uint32_t e : empty_out.of(n)) mark(empties_[e].to);
        for (const uint32_t e : call_out.of(n)) {
          first[r].push_back(calls_[e].rule);
          if (nullable[start_of(calls_[e].rule)]) mark(calls_[e].back);
        }
      }
    }
    return has_circle(first) ? bad_input("a part of it contains itself before anything is read")
                             : ok_status();
  }

  static bool has_circle(const std::vector<std::vector<RuleId>>& edges) {
    enum : uint8_t { fresh, open, done };
    std::vector<uint8_t> state(edges.size(), fresh);
    std::vector<std::pair<size_t, size_t>> path;  // rule, next edge
    for (size_t root = 0; root < edges.size(); ++root) {
      if (state[root] != fresh) continue;
      path.emplace_back(root, 0);
      state[root] = open;
      while (!path.empty()) {
        auto& [rule, next] = path.back();
        if (next == edges[rule].size()) {
          state[rule] = done;
          path.pop_back();
          continue;
        }
        const auto to = static_cast<size_t>(edges[rule][next++]);
        if (state[to] == open) return true;
        if (state[to] == fresh) {
          state[to] = open;
          path.emplace_back(to, 0);
        }
      }
    }
    return false;
  }

  // need_[n]: least number of calls that must be open at a time on the way from n to the end of
  // its rule; kNever: there is no way. Nodes are settled in rising order (Knuth's generalisation of
  // Dijkstra's algorithm).
  void compute_need() {
    need_.assign(n_nodes_, kNever);
    const Index byte_in(bytes_, n_nodes_, [](const RawByte& e) { return e.to; });
    const Index empty_in(empties_, n_nodes_, [](const RawEmpty& e) { return e.to; });
    const Index call_in(calls_, n_nodes_, [](const RawCall& e) { return e.back; });
    const Index by_start(calls_, n_nodes_, [this](const RawCall& e) { return start_of(e.rule); });
    std::vector<std::vector<NodeId>> level(Network::kMaxDepth + 2);
    const auto reach = [&](NodeId n, int cost) {
      if (cost <= Network::kMaxDepth && cost < need_[n]) {
        need_[n] = static_cast<uint8_t>(cost);
        level[static_cast<size_t>(cost)].push_back(n);
      }
    };
    const auto reach_call = [&](const RawCall& e) {
      const int inside = need_[start_of(e.rule)], after = need_[e.back];
      if (inside == kNever || after == kNever) return;
      reach(e.from, std::max(inside + (e.tail ? 0 : 1), after));
    };
    for (NodeId n = 0; n < n_nodes_; ++n) {
      if (final_[n]) reach(n, 0);
    }
    for (size_t cost = 0; cost < level.size(); ++cost) {
      for (size_t i = 0; i < level[cost].size(); ++i) {
        const NodeId n = level[cost][i];
        if (need_[n] != cost) continue;  // a better way was found later
        for (const uint32_t e : byte_in.of(n)) reach(bytes_[e].from, static_cast<int>(cost));
        for (const uint32_t e : empty_in.of(n)) reach(empties_[e].from, static_cast<int>(cost));
        for (const uint32_t e : call_in.of(n)) reach_call(calls_[e]);
        for (const uint32_t e : by_start.of(n)) reach_call(calls_[e]);
      }
    }
  }

  Network finish() {
    Network n;
    n.start_ = start_[static_cast<size_t>(root_)];
    const auto dead = [this](NodeId at) { return need_[at] == kNever; };
    std::erase_if(bytes_, [&](const RawByte& e) { return dead(e.to); });
    std::erase_if(empties_, [&](const RawEmpty& e) { return dead(e.to); });
    std::erase_if(calls_, [&](const RawCall& e) { return dead(e.back) || dead(start_of(e.rule)); });
    const auto rows = [this](const auto& edges, std::vector<uint32_t>& begin, auto add) {
      const Index out(edges, n_nodes_, [](const auto& e) { return e.from; });
      begin.assign(n_nodes_ + 1, 0);
      for (size_t i = 0; i < n_nodes_; ++i) {
        for (const uint32_t e : out.of(i)) add(edges[e]);
        begin[i + 1] = begin[i] + static_cast<uint32_t>(out.of(i).size());
      }
    };
    std::map<uint32_t, uint16_t> set_numbers;
    rows(bytes_, n.byte_begin_, [&](const RawByte& e) {
      const auto [it, fresh] =
          set_numbers.try_emplace(e.set, static_cast<uint16_t>(set_numbers.size()));
      n.byte_edges_.push_back({it->second, e.to});
    });
    rows(empties_, n.empty_begin_, [&](const RawEmpty& e) { n.empty_edges_.push_back(e.to); });
    rows(calls_, n.call_begin_, [&](const RawCall& e) {
      n.call_edges_.push_back({start_of(e.rule), e.back, e.tail});
    });
    n.final_ = std::move(final_);
    n.need_ = std::move(need_);
    make_classes(n, set_numbers);
    return n;
  }

  // Splits the bytes by every set in use.
  void make_classes(Network& n, const std::map<uint32_t, uint16_t>& set_numbers) const {
    int count = 1;
    for (const auto& [set, number] : set_numbers) {
      std::map<uint8_t, uint8_t> inside;  // class -> new class of its members inside the set
      std::array<int, 256> members{}, in_set{};
      for (size_t b = 0; b < 256; ++b) {
        ++members[n.class_of_[b]];
        if (g_.byte_sets()[set].test(b)) ++in_set[n.class_of_[b]];
      }
      for (size_t b = 0; b < 256; ++b) {
        uint8_t& c = n.class_of_[b];
        if (!g_.byte_sets()[set].test(b) || in_set[c] == 0 || in_set[c] == members[c]) continue;
        const auto [it, fresh] = inside.try_emplace(c, static_cast<uint8_t>(count));
        count += fresh ? 1 : 0;
        c = it->second;
      }
    }
    n.n_classes_ = count;
    n.class_sets_.resize(set_numbers.size());
    for (const auto& [set, number] : set_numbers) {
      for (size_t b = 0; b < 256; ++b) {
        if (g_.byte_sets()[set].test(b)) n.class_sets_[number].set(n.class_of_[b]);
      }
    }
  }

  const Grammar& g_;
  const RuleId root_;
  std::vector<ExprId> rules_;  // the grammar's, then wrapped ones
  std::map<ExprId, RuleId> wrapped_;
  std::vector<NodeId> start_, end_;  // of each rule that is reached
  std::vector<RuleId> work_;
  size_t n_nodes_ = 0;
  std::vector<RawByte> bytes_;
  std::vector<RawEmpty> empties_;
  std::vector<RawCall> calls_;
  std::vector<bool> final_;
  std::vector<uint8_t> need_;
};

Result<Network> Network::compile(const Grammar& grammar, RuleId root) {
  return NetworkBuilder(grammar, root).build();
}

}  // namespace pagefold::grammar
