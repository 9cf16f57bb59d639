#include "grammar/token_grammar.h"

#include <algorithm>

namespace pagefold {
namespace {

constexpr uint64_t kMaxWork = 3'000'000;  // of one mask: some tens of milliseconds
constexpr size_t kMaxMaskBytes = size_t{8} << 20;

}  // namespace

using grammar::kDead;
using grammar::StateId;
using grammar::TokenMask;

Result<std::shared_ptr<TokenGrammar>> TokenGrammar::make(
    const grammar::Grammar& source, grammar::RuleId root,
    std::shared_ptr<const grammar::Vocabulary> vocabulary, size_t max_memory) {
  PF_ASSIGN(grammar::Network network, grammar::Network::compile(source, root));
  std::shared_ptr<TokenGrammar> made(
      new TokenGrammar(std::move(network), std::move(vocabulary), max_memory));
  const std::shared_ptr<const TokenMask> first = made->mask_of(made->automaton_.start());
  if (first == nullptr) return bad_input("it is too ambiguous to be followed quickly");
  for (const uint32_t word : *first) {
    if (word != 0) return made;
  }
  return bad_input("no token of the model can begin a text that matches");
}

StateId TokenGrammar::read(std::string_view text) {
  StateId state = automaton_.start();
  for (const char c : text) {
    if (state == kDead) break;
    state = automaton_.next(state, static_cast<unsigned char>(c));
  }
  return state;
}

bool TokenGrammar::matches(std::string_view text) {
  std::lock_guard lock(mutex_);
  const StateId state = read(text);
  return state != kDead && automaton_.accepting(state);
}

bool TokenGrammar::matches_prefix(std::string_view text) {
  std::lock_guard lock(mutex_);
  return read(text) != kDead;
}

std::shared_ptr<const TokenMask> TokenGrammar::mask_of(StateId state) {
  if (const auto known = masks_.find(state); known != masks_.end()) return known->second;
  auto mask = std::make_shared<TokenMask>();
  if (!vocabulary_->mask(automaton_, state, kMaxWork, *mask)) return nullptr;
  if (masks_.size() * mask->size() * sizeof(uint32_t) > kMaxMaskBytes) masks_.clear();
  masks_[state] = mask;
  return mask;
}

// Starts anew when too much was kept. Matchers see the epoch and read their text again.
void TokenGrammar::trim() {
  if (automaton_.memory() < std::max(max_memory_, memory_limit_)) return;
  automaton_.clear();
  masks_.clear();
  memory_limit_ = 0;
  ++epoch_;
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<TokenGrammar> grammar)
    : grammar_(std::move(grammar)) {}

void GrammarMatcher::catch_up() {
  grammar_->trim();
  if (epoch_ == grammar_->epoch_) return;
  epoch_ = grammar_->epoch_;
  state_ = grammar_->read(text_);
  // Texts that need much by themselves must not make everything anew at every token.
  grammar_->memory_limit_ = std::max(grammar_->memory_limit_, 2 * grammar_->automaton_.memory());
}

const TokenMask* GrammarMatcher::allowed() {
  if (mask_ == nullptr) {
    std::lock_guard lock(grammar_->mutex_);
    catch_up();
    mask_ = grammar_->mask_of(state_);
  }
  return mask_.get();
}

bool GrammarMatcher::accept(int32_t token) {
  const grammar::Vocabulary& v = grammar_->vocabulary();
  if (ended_ || token < 0 || token >= v.size()) return false;
  std::lock_guard lock(grammar_->mutex_);
  catch_up();
  if (v.is_end(token)) {
    if (!grammar_->automaton_.accepting(state_)) return false;
    ended_ = true;
    return true;
  }
  if (v.bytes(token).empty()) return false;
  StateId to = state_;
  for (const char c : v.bytes(token)) {
    to = grammar_->automaton_.next(to, static_cast<unsigned char>(c));
    if (to == kDead) return false;
  }
  text_ += v.bytes(token);
  state_ = to;
  mask_ = nullptr;
  return true;
}

bool GrammarMatcher::may_end() {
  if (ended_) return true;
  std::lock_guard lock(grammar_->mutex_);
  catch_up();
  return grammar_->automaton_.accepting(state_);
}

bool GrammarMatcher::finished() {
  if (ended_) return true;
  std::lock_guard lock(grammar_->mutex_);
  catch_up();
  return !grammar_->automaton_.continues(state_);
}

}  // namespace pagefold
