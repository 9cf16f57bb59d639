// A Grammar as one graph: each rule is a nondeterministic automaton whose edges read a byte, read
// nothing, or call a rule (a recursive transition network; Woods 1970). What can never lead to the
// end of the text is removed, so whoever follows the edges within the depth limit is never stuck.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "grammar/grammar.h"

namespace pagefold::grammar {

using NodeId = uint32_t;

class Network {
 public:
  // Calls that may be open at a time. A JSON value inside a value takes two.
  static constexpr int kMaxDepth = 128;
  static constexpr size_t kMaxNodes = 600'000;

  struct ByteEdge {
    uint16_t set;  // of byte classes: reads_class()
    NodeId to;
  };
  struct CallEdge {
    NodeId start;  // of the rule
    NodeId back;   // where it goes on
    bool tail;     // nothing is left to do at `back` but to return
  };

  // Refuses: too large, a rule that calls itself before it reads anything, a rule that is called
  // and not defined, nothing that matches.
  static Result<Network> compile(const Grammar& grammar, RuleId root);

  NodeId start() const { return start_; }
  std::span<const ByteEdge> bytes(NodeId n) const { return row(byte_edges_, byte_begin_, n); }
  std::span<const NodeId> empties(NodeId n) const { return row(empty_edges_, empty_begin_, n); }
  std::span<const CallEdge> calls(NodeId n) const { return row(call_edges_, call_begin_, n); }
  bool is_final(NodeId n) const { return final_[n]; }  // of its rule
  // Calls that must be open at a time to get from here to the end of the rule.
  int need(NodeId n) const { return need_[n]; }

  // Bytes that no edge tells apart share a class.
  int classes() const { return n_classes_; }
  int class_of(unsigned char byte) const { return class_of_[byte]; }
  bool reads_class(uint16_t set, int cls) const {
    return class_sets_[set].test(static_cast<size_t>(cls));
  }
  size_t nodes() const { return final_.size(); }

 private:
  friend class NetworkBuilder;
  template <class T>
  static std::span<const T> row(const std::vector<T>& edges, const std::vector<uint32_t>& begin,
                                NodeId n) {
    return {edges.data() + begin[n], edges.data() + begin[n + 1]};
  }

  NodeId start_ = 0;
  std::vector<ByteEdge> byte_edges_;
  std::vector<NodeId> empty_edges_;
  std::vector<CallEdge> call_edges_;
  std::vector<uint32_t> byte_begin_, empty_begin_, call_begin_;  // [nodes + 1]
  std::vector<bool> final_;
  std::vector<uint8_t> need_;
  std::array<uint8_t, 256> class_of_{};
  int n_classes_ = 1;
  std::vector<ByteSet> class_sets_;
};

}  // namespace pagefold::grammar
