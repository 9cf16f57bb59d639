// The tokens of a model as byte strings in a tree, and which of them an automaton lets through.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "grammar/automaton.h"

namespace pagefold::grammar {

// One bit a token: word id / 32, bit id % 32.
using TokenMask = std::vector<uint32_t>;
inline bool mask_allows(std::span<const uint32_t> mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> (static_cast<uint32_t>(token) % 32)) & 1;
}

// Immutable after construction.
class Vocabulary {
 public:
  // tokens[id]: the bytes of a token inside a text; "" for those that have no place in a
  // constrained answer (special tokens). end_tokens end an answer and are never text.
  Vocabulary(std::vector<std::string> tokens, std::vector<int32_t> end_tokens);

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  const std::string& bytes(int32_t token) const { return tokens_[static_cast<size_t>(token)]; }
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  bool is_end(int32_t token) const;

  // The tokens that may follow in `state`; end tokens where it accepts. False: it would take more
  // than `max_work` (see Automaton::work).
  bool mask(Automaton& automaton, StateId state, uint64_t max_work, TokenMask& out) const;

 private:
  // Nodes of the tree in the order of a walk that visits children after their parent.
  struct Node {
    uint32_t next;   // the first node behind this one's descendants
    int32_t token;   // -1: none ends here; else the first in same_
    uint16_t depth;  // bytes up to and with `byte`
    uint8_t byte;
  };
  std::vector<std::string> tokens_;
  std::vector<int32_t> end_tokens_;
  std::vector<Node> nodes_;
  std::vector<int32_t> same_;  // [token] the next one with the same bytes; -1: none
  size_t max_depth_ = 0;
};

}  // namespace pagefold::grammar
