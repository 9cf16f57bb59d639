#include "grammar/vocabulary.h"

#include <algorithm>
#include <numeric>

namespace pagefold::grammar {
namespace {

constexpr size_t kLongestToken = 65535;

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::vector<int32_t> end_tokens)
    : tokens_(std::move(tokens)), end_tokens_(std::move(end_tokens)), same_(tokens_.size(), -1) {
  std::erase_if(end_tokens_, [this](int32_t id) { return id < 0 || id >= size(); });
  for (const int32_t id : end_tokens_) tokens_[static_cast<size_t>(id)].clear();
  std::vector<int32_t> order;
  for (int32_t id = 0; id < size(); ++id) {
    if (!bytes(id).empty() && bytes(id).size() <= kLongestToken) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(),
                   [this](int32_t a, int32_t b) { return bytes(a) < bytes(b); });
  std::vector<uint32_t> path;  // the nodes of the token before
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].next = static_cast<uint32_t>(nodes_.size());
    }
  };
  std::string_view before;
  for (const int32_t id : order) {
    const std::string& text = bytes(id);
    size_t shared = 0;
    while (shared < before.size() && shared < text.size() && before[shared] == text[shared]) {
      ++shared;
    }
    close(shared);
    for (size_t i = shared; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, -1, static_cast<uint16_t>(i + 1), static_cast<uint8_t>(text[i])});
    }
    Node& last = nodes_[path.back()];
    same_[static_cast<size_t>(id)] = last.token;
    last.token = id;
    max_depth_ = std::max(max_depth_, text.size());
    before = text;
  }
  close(0);
}

bool Vocabulary::is_end(int32_t token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

bool Vocabulary::mask(Automaton& automaton, StateId state, uint64_t max_work,
                      TokenMask& out) const {
  out.assign((tokens_.size() + 31) / 32, 0);
  const auto allow = [&out](int32_t id) {
    out[static_cast<size_t>(id) / 32] |= uint32_t{1} << (static_cast<uint32_t>(id) % 32);
  };
  if (automaton.accepting(state)) {
    for (const int32_t id : end_tokens_) allow(id);
  }
  const uint64_t work_end = automaton.work() + max_work;
  std::vector<StateId> states(max_depth_ + 1);  // [depth] after that many bytes
  states[0] = state;
  const auto n = static_cast<uint32_t>(nodes_.size());
  for (uint32_t i = 0; i < n;) {
    const Node& node = nodes_[i];
    const StateId to = automaton.next(states[node.depth - 1u], node.byte);
    if (to == kDead) {
      i = node.next;
      continue;
    }
    states[node.depth] = to;
    for (int32_t id = node.token; id >= 0; id = same_[static_cast<size_t>(id)]) allow(id);
    ++i;
    if (automaton.work() > work_end) return false;
  }
  return true;
}

}  // namespace pagefold::grammar
