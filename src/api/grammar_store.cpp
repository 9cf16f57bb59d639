#include "api/grammar_store.h"

#include <algorithm>

#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/rule_text.h"

namespace pagefold {

using grammar::ExprId;
using grammar::Grammar;

AnswerShape json_object_shape() {
  return {"object", [](Grammar& g) -> Result<ExprId> { return grammar::json_object_expr(g); }};
}

AnswerShape json_schema_shape(Json schema) {
  std::string key = "schema " + dump_json(schema);
  return {std::move(key),
          [schema = std::move(schema)](Grammar& g) { return grammar::schema_expr(g, schema); }};
}

AnswerShape regex_shape(std::string pattern) {
  return {"regex " + pattern, [pattern](Grammar& g) { return grammar::regex_expr(g, pattern); }};
}

AnswerShape choice_shape(std::vector<std::string> choices) {
  std::string key = "choice";
  for (const std::string& c : choices) key.append("\n").append(c);
  return {std::move(key), [choices = std::move(choices)](Grammar& g) -> Result<ExprId> {
            return g.choice(choices);
          }};
}

AnswerShape rules_shape(std::string text) {
  return {"rules " + text, [text](Grammar& g) { return grammar::rules_expr(g, text); }};
}

Result<std::optional<AnswerShape>> shape_of(const AnswerForm& form) {
  std::vector<AnswerShape> asked;
  if (form.json_object) asked.push_back(json_object_shape());
  if (!form.json_schema.empty()) {
    auto schema = parse_json(form.json_schema);
    if (!schema.ok()) return bad_input("JSON schema: {}", message_of(schema.status()));
    asked.push_back(json_schema_shape(*std::move(schema)));
  }
  if (!form.regex.empty()) asked.push_back(regex_shape(form.regex));
  if (!form.choice.empty()) asked.push_back(choice_shape(form.choice));
  if (!form.grammar.empty()) asked.push_back(rules_shape(form.grammar));
  if (asked.size() > 1) return bad_input("only one form can be asked of an answer");
  if (asked.empty()) return std::optional<AnswerShape>();
  return std::optional<AnswerShape>(std::move(asked.front()));
}

GrammarStore::GrammarStore(const Tokenizer& tokenizer, int64_t vocab_size,
                           std::vector<int32_t> end_tokens)
    : tokenizer_(tokenizer), vocab_size_(vocab_size), end_tokens_(std::move(end_tokens)) {}

std::shared_ptr<const grammar::Vocabulary> GrammarStore::vocabulary() {
  std::call_once(once_, [this] {
    const auto n = std::max<int64_t>(vocab_size_, tokenizer_.vocab_size());
    std::vector<std::string> tokens(static_cast<size_t>(n));
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      if (!tokenizer_.is_special(id)) {
        tokens[static_cast<size_t>(id)] = tokenizer_.token_bytes(id, true);
      }
    }
    vocabulary_ = std::make_shared<const grammar::Vocabulary>(std::move(tokens), end_tokens_);
  });
  return vocabulary_;
}

Result<std::shared_ptr<TokenGrammar>> GrammarStore::get(const AnswerShape& shape) {
  {
    std::lock_guard lock(mutex_);
    const auto known = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const auto& entry) { return entry.first == shape.key; });
    if (known != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, known);
      return kept_.front().second;
    }
  }
  Grammar g;
  PF_ASSIGN(const ExprId whole, shape.build(g));
  PF_ASSIGN(std::shared_ptr<TokenGrammar> made,
            TokenGrammar::make(g, g.rule_of(whole), vocabulary()));
  std::lock_guard lock(mutex_);
  kept_.emplace_front(shape.key, made);
  if (kept_.size() > kMaxKept) kept_.pop_back();
  return made;
}

}  // namespace pagefold
