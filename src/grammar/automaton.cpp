#include "grammar/automaton.h"

#include <algorithm>

namespace pagefold::grammar {
namespace {

constexpr StateId kUnknown = -2;

uint64_t key_of(uint32_t a, int32_t b) { return (uint64_t{a} << 32) | static_cast<uint32_t>(b); }

uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 32);
}

}  // namespace

Automaton::Automaton(Network network) : network_(std::move(network)) { clear(); }

void Automaton::clear() {
  places_.clear();
  states_.clear();
  rows_.clear();
  frames_.assign(1, {0, 0, 0});
  frame_index_.clear();
  state_index_.clear();
  start_ = kDead;
}

size_t Automaton::memory() const {
  return places_.size() * sizeof(Place) + states_.size() * (sizeof(State) + 64) +
         rows_.size() * sizeof(StateId) + frames_.size() * (sizeof(Frame) + 24);
}

StateId Automaton::start() {
  if (start_ != kDead) return start_;
  reach(network_.start(), 0);
  start_ = intern();
  return start_;
}

StateId Automaton::make_next(StateId state, int cls) {
  const State from = states_[static_cast<size_t>(state)];
  for (size_t i = from.first; i < from.first + from.n; ++i) {
    const Place place = places_[i];
    for (const Network::ByteEdge& e : network_.bytes(place.node)) {
      if (network_.reads_class(e.set, cls)) reach(e.to, place.stack);
    }
    work_ += network_.bytes(place.node).size();
  }
  const StateId to = intern();
  rows_[row(state) + static_cast<size_t>(cls)] = to;
  return to;
}

Automaton::StackId Automaton::push(NodeId back, StackId below) {
  const auto [it, fresh] =
      frame_index_.try_emplace(key_of(back, below), static_cast<StackId>(frames_.size()));
  if (fresh) frames_.push_back({back, below, frames_[static_cast<size_t>(below)].depth + 1});
  return it->second;
}

// Adds a place and all that is reached from it without reading.
void Automaton::reach(NodeId first_node, StackId first_stack) {
  const auto add = [this](NodeId node, StackId stack) {
    const int depth = frames_[static_cast<size_t>(stack)].depth;
    if (depth + network_.need(node) > Network::kMaxDepth || seen_.size() >= 4 * kMaxPlaces) return;
    if (seen_.try_emplace(key_of(node, stack), true).second) todo_.push_back({node, stack});
  };
  add(first_node, first_stack);
  while (!todo_.empty()) {
    const Place at = todo_.back();
    todo_.pop_back();
    ++work_;
    if (!network_.bytes(at.node).empty() && reached_.size() < kMaxPlaces) reached_.push_back(at);
    for (const NodeId to : network_.empties(at.node)) add(to, at.stack);
    for (const Network::CallEdge& call : network_.calls(at.node)) {
      const int depth = frames_[static_cast<size_t>(at.stack)].depth;
      if (call.tail) {
        add(call.start, at.stack);
      } else if (depth + 1 + network_.need(call.start) <= Network::kMaxDepth &&
                 depth + network_.need(call.back) <= Network::kMaxDepth) {
        add(call.start, push(call.back, at.stack));
      }
    }
    if (!network_.is_final(at.node)) continue;
    if (at.stack == 0) {
      accepting_ = true;
    } else {
      const Frame frame = frames_[static_cast<size_t>(at.stack)];
      add(frame.back, frame.below);
    }
  }
}

// The state of all places reached since the last call.
StateId Automaton::intern() {
  std::sort(reached_.begin(), reached_.end());
  const auto n = static_cast<uint32_t>(reached_.size());
  const bool accepting = accepting_;
  uint64_t hash = accepting ? 1 : 2;
  for (const Place& p : reached_) hash = mix(hash, key_of(p.node, p.stack));
  StateId found = kDead;
  if (n > 0 || accepting) {
    auto& same_hash = state_index_[hash];
    for (const StateId id : same_hash) {
      const State& s = states_[static_cast<size_t>(id)];
      if (s.n == n && s.accepting == accepting &&
          std::equal(reached_.begin(), reached_.end(),
                     places_.begin() + static_cast<ptrdiff_t>(s.first))) {
        found = id;
      }
    }
    if (found == kDead) {
      found = static_cast<StateId>(states_.size());
      states_.push_back({places_.size(), n, accepting});
      places_.insert(places_.end(), reached_.begin(), reached_.end());
      rows_.resize(rows_.size() + static_cast<size_t>(network_.classes()), kUnknown);
      same_hash.push_back(found);
    }
  }
  reached_.clear();
  seen_.clear();
  accepting_ = false;
  return found;
}

}  // namespace pagefold::grammar
