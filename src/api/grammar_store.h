// Grammars over a model's tokens, made once and kept while they are used.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/grammar.h"
#include "grammar/token_grammar.h"
#include "pagefold/pagefold.h"
#include "text/tokenizer.h"

namespace pagefold {

// What an answer must look like, before it is bound to a model.
struct AnswerShape {
  std::string key;  // equal keys stand for equal shapes
  std::function<Result<grammar::ExprId>(grammar::Grammar&)> build;
};

// Shapes of what clients write. Errors name the fault; nothing is compiled yet.
AnswerShape json_object_shape();
AnswerShape json_schema_shape(Json schema);
AnswerShape regex_shape(std::string pattern);
AnswerShape choice_shape(std::vector<std::string> choices);
// Our notation of rules (grammar/rule_text.h).
AnswerShape rules_shape(std::string text);

// nullopt: nothing is asked. kInvalidArgument: several forms at once, or a schema that is no JSON.
Result<std::optional<AnswerShape>> shape_of(const AnswerForm& form);

// Thread-safe.
class GrammarStore {
 public:
  static constexpr size_t kMaxKept = 16;
  // The tokenizer outlives the store. vocab_size: of the model, at least the tokenizer's.
  GrammarStore(const Tokenizer& tokenizer, int64_t vocab_size, std::vector<int32_t> end_tokens);
  // kInvalidArgument when the shape cannot be followed.
  Result<std::shared_ptr<TokenGrammar>> get(const AnswerShape& shape);

 private:
  std::shared_ptr<const grammar::Vocabulary> vocabulary();

  const Tokenizer& tokenizer_;
  const int64_t vocab_size_;
  const std::vector<int32_t> end_tokens_;
  std::once_flag once_;  // the vocabulary takes some tens of milliseconds: made when first needed
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  std::mutex mutex_;                                                       // what follows
  std::list<std::pair<std::string, std::shared_ptr<TokenGrammar>>> kept_;  // last used first
};

}  // namespace pagefold
