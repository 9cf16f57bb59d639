// Follows a Network over bytes. A state is the set of all places where the network may be, each
// with the calls that are open there; states and their transitions are made when first needed and
// kept, so a place seen before costs one table look-up a byte.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "grammar/network.h"

namespace pagefold::grammar {

using StateId = int32_t;
inline constexpr StateId kDead = -1;

// Not thread-safe.
class Automaton {
 public:
  // Places a state may hold. Beyond it (highly ambiguous grammars only) the rest is left out: what
  // is accepted still matches, but some texts that match are not.
  static constexpr size_t kMaxPlaces = 1024;

  explicit Automaton(Network network);

  StateId start();
  // kDead: the byte does not fit.
  StateId next(StateId state, unsigned char byte) {
    const StateId to = rows_[row(state) + network_.class_of(byte)];
    return to >= kDead ? to : make_next(state, network_.class_of(byte));
  }
  bool accepting(StateId state) const { return states_[static_cast<size_t>(state)].accepting; }
  // Some byte fits. False: the text is complete.
  bool continues(StateId state) const { return states_[static_cast<size_t>(state)].n > 0; }

  // Places looked at so far: what it cost.
  uint64_t work() const { return work_; }
  size_t memory() const;
  size_t states() const { return states_.size(); }
  // Forgets everything; ids given before are void.
  void clear();

 private:
  using StackId = int32_t;
  struct Place {
    NodeId node;
    StackId stack;
    auto operator<=>(const Place&) const = default;
  };
  struct Frame {
    NodeId back;
    StackId below;
    int depth;
  };
  struct State {
    size_t first;  // places_[first, first + n): nodes with byte edges
    uint32_t n;
    bool accepting;
  };
  size_t row(StateId state) const {
    return static_cast<size_t>(state) * static_cast<size_t>(network_.classes());
  }
  StateId make_next(StateId state, int cls);
  StateId intern();
  void reach(NodeId node, StackId stack);
  StackId push(NodeId back, StackId below);

  const Network network_;
  std::vector<Place> places_;
  std::vector<State> states_;
  std::vector<StateId> rows_;  // [states][classes]; kUnknown: not made yet
  std::vector<Frame> frames_;  // 0: no call is open
  absl::flat_hash_map<uint64_t, StackId> frame_index_;
  absl::flat_hash_map<uint64_t, std::vector<StateId>> state_index_;  // by hash
  uint64_t work_ = 0;
  StateId start_ = kDead;
  // Of the state in the making.
  std::vector<Place> reached_, todo_;
  absl::flat_hash_map<uint64_t, bool> seen_;
  bool accepting_ = false;
};

}  // namespace pagefold::grammar
