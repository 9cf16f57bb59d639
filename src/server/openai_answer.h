// One request in progress: its generations, and the answer that grows from them, plain or streamed.
// Lives on the connection's executor; the engine thread only posts to it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "server/engine_port.h"
#include "server/http.h"
#include "server/openai_choice.h"
#include "server/openai_json.h"
#include "server/openai_request.h"

namespace pagefold {

void send_error(Responder& responder, const ApiError& error);

class AnswerJob : public std::enable_shared_from_this<AnswerJob> {
 public:
  // Submits all choices; one that is refused cancels the others and is the answer. model and
  // engine outlive the job.
  static void start(const ApiModel& model, EnginePort& engine, CompletionRequest request,
                    std::shared_ptr<Responder> responder);
  ~AnswerJob();  // cancels what still runs

 private:
  struct Slot {
    explicit Slot(const ApiModel& model, const CompletionRequest& request)
        : choice(model, request), reader(request.format) {}
    Choice choice;
    MessageReader reader;
    std::shared_ptr<Generation> generation;
    const Prompt* prompt = nullptr;
    std::vector<TokenEvent> events;  // taken from the generation; from `next` on not processed yet
    size_t next = 0;
    bool engine_ended = false, done = false;
    MessageDelta whole;                 // plain answers collect it; a call is one element
    std::vector<std::string> call_ids;  // by the call's index
    bool begun = false;                 // streams: the first chunk is out
    size_t tokens_sent = 0;             // streams: tokens (and scores) that were in a chunk
    int64_t text_offset = 0;            // of the next token, in characters
  };

  AnswerJob(const ApiModel& model, EnginePort& engine, CompletionRequest request,
            std::shared_ptr<Responder> responder);
  std::optional<ApiError> submit();
  void watch_generations();
  void pump();
  bool advance(size_t index);  // false: the reader is slow, go on when it has caught up
  void take(size_t index, const TokenEvent& event);
  void finish_slot(size_t index);
  void cancel_all();
  void fail(const ApiError& error);

  // plain
  void send_plain();
  std::string plain_choice(size_t index) const;
  // streams
  void write_first(size_t index);
  void give(size_t index, MessageDelta delta);  // to the stream or to `whole`
  void append_calls(std::string& out, const Slot& slot, const std::vector<ToolCallDelta>& calls,
                    bool stream) const;
  std::string_view finish_reason(const Slot& slot) const;
  void write_delta(size_t index, const MessageDelta& delta, std::string_view finish_reason);
  void write_event(std::string_view choices_and_rest);
  void end_stream();

  void append_scores(std::string& out, const Slot& slot, size_t first, int64_t& offset,
                     bool with_prompt) const;
  UsageTotals usage() const;
  std::string head(std::string_view object) const;  // {"id":...,"model":"..."

  const ApiModel& model_;
  EnginePort& engine_;
  const CompletionRequest request_;
  const std::shared_ptr<Responder> responder_;
  const TokenNames names_;
  const std::string id_;
  const int64_t created_;
  std::string stream_head_;
  std::deque<Slot> slots_;
  std::atomic<bool> scheduled_{false};
  bool finished_ = false;
};

}  // namespace pagefold
