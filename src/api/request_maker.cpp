#include "api/request_maker.h"

#include <algorithm>
#include <utility>

#include "api/chat_prompt.h"

namespace pagefold {

RequestMaker::RequestMaker(const LoadedModel& model, int64_t vocab_size, KvOptions kv,
                           std::string keep)
    : model_(model),
      special_(*model.tokenizer),
      grammars_(*model.tokenizer, vocab_size, model.eos_token_ids),
      kv_(std::move(kv)),
      keep_(std::move(keep)) {}

Result<Request> RequestMaker::make(const AnswerWish& wish, int64_t max_model_len) {
  const KvOptions& words = wish.kv.empty() ? kv_ : wish.kv;
  PF_ASSIGN(Request r,
            wish.messages == nullptr ? raw(wish, words) : chat(wish, words, max_model_len));
  r.eos_token_ids = model_.eos_token_ids;
  PF_ASSIGN(const std::optional<AnswerShape> shape, shape_of(wish.form));
  if (shape) {
    PF_ASSIGN(r.grammar, grammars_.get(*shape));
  }
  return r;
}

namespace {

Request request_of(ChatPrompt prompt, const SamplingOptions& sampling, const KvOptions& words) {
  Request r;
  r.tokens = std::move(prompt.tokens);
  r.suffix_begin = prompt.suffix_begin;
  r.sampling = sampling;
  r.kv = words;
  r.kv.erase("keep");
  if (!prompt.keep.empty()) r.kv["keep"] = spans_text(prompt.keep);
  return r;
}

}  // namespace

Result<Request> RequestMaker::raw(const AnswerWish& wish, const KvOptions& words) {
  ChatPrompt prompt{.tokens = model_.tokenizer->encode(wish.prompt, true, true)};
  if (const auto own = words.find("keep"); own != words.end()) {
    PF_ASSIGN(const KeepWish keep, parse_keep(own->second));
    if (keep.needs_messages())
      return bad_input("kv.keep: roles and indices of messages need a chat; give spans of tokens");
    prompt.keep = joined_spans(keep.spans);
  }
  return request_of(std::move(prompt), wish.sampling, words);
}

Result<Request> RequestMaker::chat(const AnswerWish& wish, const KvOptions& words,
                                   int64_t max_model_len) {
  if (!model_.chat_template)
    return bad_input("the model has no usable chat template; use generate without --chat");
  if (wish.messages->empty()) return bad_input("messages: there are none");
  Json context = {{"messages", Json::array()}, {"add_generation_prompt", true}};
  for (const Message& m : *wish.messages) {
    context["messages"].push_back({{"role", m.role}, {"content", m.content}});
  }
  const auto own = words.find("keep");
  PF_ASSIGN(KeepWish keep, parse_keep(own == words.end() ? keep_ : own->second));
  keep.lenient = own == words.end();
  ChatPromptOptions options{.find_suffix = !words.empty()};
  if (!words.empty()) options.keep = &keep;
  PF_ASSIGN(ChatPrompt prompt, chat_prompt(*model_.tokenizer, *model_.chat_template, special_,
                                           std::move(context), options));
  if (!keep.lenient) PF_TRY(prompt.keep_status);
  const auto n_prompt = static_cast<int64_t>(prompt.tokens.size());
  Request r = request_of(std::move(prompt), wish.sampling, words);
  if (!r.sampling.max_tokens && model_.defaults.max_new_tokens) {
    r.sampling.max_tokens = std::clamp<int64_t>(*model_.defaults.max_new_tokens, 1,
                                                std::max<int64_t>(1, max_model_len - n_prompt));
  }
  return r;
}

}  // namespace pagefold
