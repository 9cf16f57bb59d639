// A request in tokens and its answer in tokens. Text lives on the caller's side of this line.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pagefold/options.h"
#include "pagefold/usage.h"

namespace pagefold {

class AnswerWatch;
class TokenGrammar;

struct Request {
  std::string id;               // for logs; made by the front end
  std::vector<int32_t> tokens;  // the prompt, at least one token
  // From this token on the prompt is a chat template's suffix, which policies with an observation
  // window leave out of it. 0: there is none.
  int64_t suffix_begin = 0;
  // Stop strings are matched by `watch` and, for the text, by the front end.
  SamplingOptions sampling;
  std::vector<int32_t> eos_token_ids;
  KvOptions kv;
  // The tokens around a thought, -1: the model has none; and those that may follow it as blank
  // lines. A session drops thoughts at the end of a turn, as chat templates do.
  struct Thinking {
    int32_t open = -1, close = -1;
    std::vector<int32_t> blanks;
  };
  Thinking thinking;
  std::string cache_salt;  // only requests with the same salt share cached prefixes
  // Where stop strings end the answer; null: the front end finds them and cancels.
  std::shared_ptr<AnswerWatch> watch;
  // What the answer must match; null: anything. Its vocabulary is the model's.
  std::shared_ptr<TokenGrammar> grammar;
};

enum class FinishReason : uint8_t { none, stop, length, cancelled, error };
std::string_view finish_reason_name(FinishReason r);  // "stop", "length", "abort", "error"

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

// One generated token. The chosen token's own log-probability comes first in `logprobs`, then the
// best ones, best first (the chosen one appears there again if it is among them).
struct TokenEvent {
  int32_t token = 0;
  std::vector<TokenLogprob> logprobs;  // empty when not asked for
};

struct GenerationResult {
  FinishReason reason = FinishReason::none;
  int32_t stop_token = -1;  // the end or stop token that was chosen, if any (it is the last event)
  std::string error;        // when reason == error
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  double queued_s = 0, prefill_s = 0, decode_s = 0;  // wall times
  std::vector<std::vector<TokenLogprob>>
      prompt_logprobs;  // [prompt_tokens], first empty; when asked for
  // Cache use at the finish, before freeing.
  int64_t kv_slots = 0, kv_blocks = 0;
  uint64_t kv_bytes = 0, kv_peak_bytes = 0;
  KvUsage kv;
};

// Shared by the engine thread (writer) and one consumer. All methods are thread-safe.
class Generation {
 public:
  // Takes the events that came since the last call (`events` is cleared first). False when the
  // generation has ended and all events were taken: the last events come with true.
  bool poll(std::vector<TokenEvent>& events);
  // Waits until poll would return something new or the end.
  void wait();
  bool finished() const;
  // Valid once finished.
  const GenerationResult& result() const { return result_; }
  // Ends the generation before the next step; its blocks come back. Idempotent.
  void cancel() { cancel_.store(true, std::memory_order_relaxed); }
  bool cancel_requested() const { return cancel_.load(std::memory_order_relaxed); }
  // Called on the engine thread, at most once a step, after new events or the end. Must not block
  // and must not call on_change. Calls notify at once (on this thread) if something is already
  // there. Once on_change returns, the callback set before is not running and is never called
  // again.
  void on_change(std::function<void()> notify);

  // --- engine side ---
  void push(TokenEvent event);  // no notification yet
  void finish(GenerationResult result);
  void notify();  // wakes waiters and calls the callback if anything changed

 private:
  mutable std::mutex mutex_;  // events_, result_, finished_, dirty_
  std::condition_variable changed_;
  std::vector<TokenEvent> events_;
  GenerationResult result_;
  bool finished_ = false, dirty_ = false;
  std::atomic<bool> cancel_{false};
  std::mutex callback_mutex_;  // held while the callback runs; never taken inside mutex_
  std::function<void()> callback_;
};

}  // namespace pagefold
