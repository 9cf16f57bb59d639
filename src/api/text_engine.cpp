// include/pagefold/pagefold.h on top of a loaded model and the engine.
#include <algorithm>
#include <atomic>
#include <utility>

#include "api/chat_prompt.h"
#include "api/engine_setup.h"
#include "api/grammar_store.h"
#include "api/stop_watch.h"
#include "engine/engine.h"
#include "pagefold/pagefold.h"
#include "text/stream_decoder.h"

namespace pagefold {
namespace {

class Stream final : public TextStream {
 public:
  Stream(const Tokenizer& tokenizer, std::shared_ptr<Generation> generation,
         StreamDecoder::Options options)
      : decoder_(tokenizer, std::move(options)), generation_(std::move(generation)) {}
  ~Stream() override { generation_->cancel(); }

  std::optional<std::string> next() override {
    std::string text;
    while (text.empty() && !ended_) {
      generation_->wait();
      events_.clear();
      const bool more = generation_->poll(events_);
      for (const TokenEvent& e : events_) {
        if (decoder_.stopped()) break;
        token_ids_.push_back(e.token);
        text += decoder_.push(e.token);
      }
      if (decoder_.stopped()) {
        ended_ = true;
        generation_->cancel();
      } else if (!more) {
        ended_ = true;
        text += decoder_.finish();
      }
    }
    if (text.empty() && ended_) return std::nullopt;
    return text;
  }

  std::string finish_reason() const override {
    if (decoder_.stopped()) return "stop";
    return std::string(finish_reason_name(generation_->finished() ? generation_->result().reason
                                                                  : FinishReason::cancelled));
  }

  Usage usage() const override {
    // A stop string ends the text at once and the generation one step later.
    while (!generation_->finished()) {
      generation_->wait();
      std::vector<TokenEvent> rest;
      generation_->poll(rest);
    }
    const GenerationResult& r = generation_->result();
    return {.prompt_tokens = r.prompt_tokens,
            .completion_tokens = static_cast<int64_t>(token_ids_.size()),
            .kv_slots = r.kv_slots,
            .kv_blocks = r.kv_blocks,
            .kv_bytes = r.kv_bytes,
            .kv_peak_bytes = r.kv_peak_bytes,
            .kv = r.kv,
            .queued_s = r.queued_s,
            .prefill_s = r.prefill_s,
            .decode_s = r.decode_s};
  }

  const std::vector<int32_t>& token_ids() const override { return token_ids_; }
  void cancel() override { generation_->cancel(); }

 private:
  StreamDecoder decoder_;
  std::shared_ptr<Generation> generation_;
  std::vector<TokenEvent> events_;
  std::vector<int32_t> token_ids_;
  bool ended_ = false;
};

class TextEngine final : public Engine {
 public:
  TextEngine(LoadedModel model, KvOptions kv, std::string keep)
      : model_(std::move(model)),
        special_(*model_.tokenizer),
        grammars_(*model_.tokenizer, model_.network->shape().vocab_size, model_.eos_token_ids),
        kv_(std::move(kv)),
        keep_(std::move(keep)) {}

  Status start(const EngineConfig& config) {
    PF_ASSIGN(core_, EngineCore::start(*model_.network, config));
    return ok_status();
  }

  Result<std::unique_ptr<TextStream>> generate(std::string_view prompt,
                                               const SamplingOptions& sampling, const KvOptions& kv,
                                               const AnswerForm& form) override {
    ChatPrompt raw{.tokens = model_.tokenizer->encode(prompt, true, true)};
    const KvOptions& words = kv.empty() ? kv_ : kv;
    if (const auto own = words.find("keep"); own != words.end()) {
      PF_ASSIGN(const KeepWish wish, parse_keep(own->second));
      if (wish.needs_messages())
        return bad_input(
            "kv.keep: roles and indices of messages need a chat; give spans of tokens");
      raw.keep = joined_spans(wish.spans);
    }
    return submit(std::move(raw), sampling, kv, form, false);
  }

  Result<std::unique_ptr<TextStream>> chat(const std::vector<Message>& messages,
                                           const SamplingOptions& sampling, const KvOptions& kv,
                                           const AnswerForm& form) override {
    if (!model_.chat_template)
      return bad_input("the model has no usable chat template; use generate without --chat");
    if (messages.empty()) return bad_input("messages: there are none");
    Json context = {{"messages", Json::array()}, {"add_generation_prompt", true}};
    for (const Message& m : messages) {
      context["messages"].push_back({{"role", m.role}, {"content", m.content}});
    }
    const KvOptions& words = kv.empty() ? kv_ : kv;
    const auto own = words.find("keep");
    PF_ASSIGN(KeepWish wish, parse_keep(own == words.end() ? keep_ : own->second));
    wish.lenient = own == words.end();
    ChatPromptOptions options{.find_suffix = !words.empty()};
    if (!words.empty()) options.keep = &wish;
    PF_ASSIGN(ChatPrompt prompt, chat_prompt(*model_.tokenizer, *model_.chat_template, special_,
                                             std::move(context), options));
    if (!wish.lenient) PF_TRY(prompt.keep_status);
    SamplingOptions chosen = sampling;
    if (!chosen.max_tokens && model_.defaults.max_new_tokens) {
      const int64_t room =
          core_->config().max_model_len - static_cast<int64_t>(prompt.tokens.size());
      chosen.max_tokens =
          std::clamp<int64_t>(*model_.defaults.max_new_tokens, 1, std::max<int64_t>(1, room));
    }
    return submit(std::move(prompt), chosen, kv, form, true);
  }

  SamplingOptions default_sampling() const override {
    SamplingOptions options;
    apply_defaults(model_.defaults, options);
    return options;
  }

  std::vector<int32_t> tokenize(std::string_view text, bool add_special) const override {
    return model_.tokenizer->encode(text, add_special, true);
  }
  std::string detokenize(const std::vector<int32_t>& tokens) const override {
    return model_.tokenizer->decode(tokens, false);
  }

 private:
  Result<std::unique_ptr<TextStream>> submit(ChatPrompt prompt, const SamplingOptions& sampling,
                                             const KvOptions& kv, const AnswerForm& form,
                                             bool at_text_start) {
    Request r;
    r.id = fmt::format("local-{}", ++count_);
    r.tokens = std::move(prompt.tokens);
    r.suffix_begin = prompt.suffix_begin;
    r.sampling = sampling;
    r.eos_token_ids = model_.eos_token_ids;
    r.kv = kv.empty() ? kv_ : kv;
    r.kv.erase("keep");
    if (!prompt.keep.empty()) r.kv["keep"] = spans_text(prompt.keep);
    PF_ASSIGN(const std::optional<AnswerShape> shape, shape_of(form));
    if (shape) {
      PF_ASSIGN(r.grammar, grammars_.get(*shape));
    }
    StreamDecoder::Options options{.skip_special = sampling.skip_special_tokens,
                                   .stop = sampling.stop,
                                   .include_stop = sampling.include_stop_str_in_output,
                                   .at_text_start = at_text_start};
    watch_for_stop(*model_.tokenizer, options, r);
    PF_ASSIGN(std::shared_ptr<Generation> generation, core_->submit(std::move(r)));
    return std::make_unique<Stream>(*model_.tokenizer, std::move(generation), std::move(options));
  }

  LoadedModel model_;
  SpecialPieces special_;
  GrammarStore grammars_;
  KvOptions kv_;
  std::string keep_;
  std::unique_ptr<EngineCore> core_;  // after model_: it ends first
  std::atomic<uint64_t> count_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  PF_ASSIGN(EngineSetup setup, load_for_engine(options));
  auto engine = std::make_unique<TextEngine>(std::move(setup.model), options.kv, options.kv_keep);
  PF_TRY(engine->start(setup.config));
  return engine;
}

}  // namespace pagefold
