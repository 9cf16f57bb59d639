// A grammar over a model's tokens, shared by all requests that use it, and the place of one answer
// in it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/vocabulary.h"

namespace pagefold {

class GrammarMatcher;

// Thread-safe. Masks and states are kept by what has been read so far (not by the text itself), up
// to a bound; then they are made anew.
class TokenGrammar {
 public:
  static constexpr size_t kDefaultMemory = size_t{16} << 20;
  // Refuses what cannot be compiled and what is too ambiguous to be followed quickly: the mask of
  // the beginning is made here.
  static Result<std::shared_ptr<TokenGrammar>> make(
      const grammar::Grammar& source, grammar::RuleId root,
      std::shared_ptr<const grammar::Vocabulary> vocabulary,
      size_t max_memory = kDefaultMemory);  // of what is kept, in bytes

  const grammar::Vocabulary& vocabulary() const { return *vocabulary_; }
  // Does the whole text match? For tests and checks.
  bool matches(std::string_view text);
  // Some text that matches begins with this one.
  bool matches_prefix(std::string_view text);

 private:
  friend class GrammarMatcher;
  TokenGrammar(grammar::Network network, std::shared_ptr<const grammar::Vocabulary> vocabulary,
               size_t max_memory)
      : vocabulary_(std::move(vocabulary)),
        max_memory_(max_memory),
        automaton_(std::move(network)) {}
  grammar::StateId read(std::string_view text);
  std::shared_ptr<const grammar::TokenMask> mask_of(grammar::StateId state);
  void trim();

  const std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  const size_t max_memory_;
  std::mutex mutex_;  // what follows
  grammar::Automaton automaton_;
  uint64_t epoch_ = 0;       // of the automaton's ids
  size_t memory_limit_ = 0;  // max_memory_, or more when the answers at hand need it
  absl::flat_hash_map<grammar::StateId, std::shared_ptr<const grammar::TokenMask>> masks_;
};

// One answer. Used by one thread at a time.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<TokenGrammar> grammar);

  // One bit a token of the vocabulary (grammar::mask_allows). Null: the grammar is too ambiguous
  // here. The same until the next accept().
  const grammar::TokenMask* allowed();
  // Takes a token. False: it does not fit (nothing changes).
  bool accept(int32_t token);
  // The text may end here.
  bool may_end();
  // An end token was taken, or nothing may follow: the answer is over.
  bool finished();

 private:
  void catch_up();  // under the grammar's lock
  const std::shared_ptr<TokenGrammar> grammar_;
  std::string text_;  // read so far
  grammar::StateId state_ = grammar::kDead;
  uint64_t epoch_ = ~uint64_t{0};  // of state_
  bool ended_ = false;
  std::shared_ptr<const grammar::TokenMask> mask_;
};

}  // namespace pagefold
