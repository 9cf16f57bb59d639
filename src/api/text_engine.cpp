// include/pagefold/pagefold.h on top of a loaded model and the engine.
#include <atomic>
#include <utility>

#include "api/engine_setup.h"
#include "api/open_engine.h"
#include "api/request_maker.h"
#include "api/stop_watch.h"
#include "engine/engine.h"
#include "engine/limits.h"
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

SamplingOptions suggested_sampling(const LoadedModel& model) {
  SamplingOptions options;
  apply_defaults(model.defaults, options);
  return options;
}

class TextEngine final : public Engine {
 public:
  TextEngine(LoadedModel model, const EngineOptions& options)
      : model_(std::move(model)),
        maker_(model_, model_.network->shape().vocab_size, options.kv, options.kv_keep) {}

  Status start(const EngineConfig& config) {
    PF_ASSIGN(core_, EngineCore::start(*model_.network, config));
    return ok_status();
  }

  Result<std::unique_ptr<TextStream>> generate(std::string_view prompt,
                                               const SamplingOptions& sampling, const KvOptions& kv,
                                               const AnswerForm& form) override {
    return submit({prompt, nullptr, sampling, kv, form});
  }

  Result<std::unique_ptr<TextStream>> chat(const std::vector<Message>& messages,
                                           const SamplingOptions& sampling, const KvOptions& kv,
                                           const AnswerForm& form) override {
    return submit({{}, &messages, sampling, kv, form});
  }

  SamplingOptions default_sampling() const override { return suggested_sampling(model_); }

  std::vector<int32_t> tokenize(std::string_view text, bool add_special) const override {
    return model_.tokenizer->encode(text, add_special, true);
  }
  std::string detokenize(const std::vector<int32_t>& tokens) const override {
    return model_.tokenizer->decode(tokens, false);
  }

 private:
  Result<std::unique_ptr<TextStream>> submit(const AnswerWish& wish) {
    PF_ASSIGN(Request r, maker_.make(wish, core_->config().max_model_len));
    r.id = fmt::format("local-{}", ++count_);
    const SamplingOptions& sampling = wish.sampling;
    StreamDecoder::Options options{.skip_special = sampling.skip_special_tokens,
                                   .stop = sampling.stop,
                                   .include_stop = sampling.include_stop_str_in_output,
                                   .at_text_start = wish.messages != nullptr};
    watch_for_stop(*model_.tokenizer, options, r);
    PF_ASSIGN(std::shared_ptr<Generation> generation, core_->submit(std::move(r)));
    return std::make_unique<Stream>(*model_.tokenizer, std::move(generation), std::move(options));
  }

  LoadedModel model_;
  RequestMaker maker_;
  std::unique_ptr<EngineCore> core_;  // after model_: it ends first
  std::atomic<uint64_t> count_{0};
};

Status check_first(const FirstAnswer& first, const EngineOptions& options, const LoadedModel& model,
                   const EngineConfig& config, int64_t vocab_size) {
  const SamplingOptions sampling = first.sampling(suggested_sampling(model));
  if (first.open_prompt) {
    Request any;
    any.tokens = {0};
    any.sampling = sampling;
    return check_request(any, config, vocab_size);
  }
  RequestMaker maker(model, vocab_size, options.kv, options.kv_keep);
  const bool chat = !first.messages.empty();
  PF_ASSIGN(const Request r, maker.make({first.prompt, chat ? &first.messages : nullptr, sampling,
                                         first.kv, first.form},
                                        config.max_model_len));
  return check_request(r, config, vocab_size);
}

Result<std::unique_ptr<Engine>> started(EngineSetup setup, const EngineOptions& options) {
  auto engine = std::make_unique<TextEngine>(std::move(setup.model), options);
  PF_TRY(engine->start(setup.config));
  return engine;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  PF_ASSIGN(EngineSetup setup, load_for_engine(options));
  return started(std::move(setup), options);
}

Result<std::unique_ptr<Engine>> open_engine(const EngineOptions& options,
                                            const FirstAnswer& first) {
  PF_ASSIGN(EngineSetup setup,
            load_for_engine(
                options, {},
                [&](const LoadedModel& model, const EngineConfig& config, int64_t vocab_size) {
                  return check_first(first, options, model, config, vocab_size);
                }));
  return started(std::move(setup), options);
}

}  // namespace pagefold
