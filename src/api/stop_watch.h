// Finds the stop strings of a request on the engine's thread, so that the answer, its cache and its
// usage end with the same token whatever the front end is doing. A session goes on behind the
// tokens of the text before the match; those that make the match (or begin in it) are dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/answer_watch.h"
#include "engine/request.h"
#include "text/stream_decoder.h"

namespace pagefold {

class StopWatch final : public AnswerWatch {
 public:
  // options: as the front end decodes the answer. The tokenizer outlives it.
  StopWatch(const Tokenizer& tokenizer, const StreamDecoder::Options& options);

  bool ends_with(int32_t token) override;
  int64_t shown_tokens() const override { return shown_; }

 private:
  StreamDecoder decoder_, plain_;  // plain: the same without stop strings
  size_t bytes_ = 0, plain_bytes_ = 0;
  std::vector<size_t> ends_;  // plain bytes after each token
  int64_t shown_ = 0;
};

// Sets r.watch if there are stop strings.
void watch_for_stop(const Tokenizer& tokenizer, const StreamDecoder::Options& options, Request& r);

}  // namespace pagefold
