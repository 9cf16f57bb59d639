#include "api/stop_watch.h"

#include <algorithm>
#include <utility>

namespace pagefold {
namespace {

StreamDecoder::Options without_stop(StreamDecoder::Options options) {
  options.stop.clear();
  return options;
}

}  // namespace

StopWatch::StopWatch(const Tokenizer& tokenizer, const StreamDecoder::Options& options)
    : decoder_(tokenizer, options), plain_(tokenizer, without_stop(options)) {}

bool StopWatch::ends_with(int32_t token) {
  bytes_ += decoder_.push(token).size();
  plain_bytes_ += plain_.push(token).size();
  ends_.push_back(plain_bytes_);
  if (!decoder_.stopped()) return false;
  // A token that adds nothing yet (half a character) goes with the one that completes it.
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), bytes_);
  shown_ = end - ends_.begin();
  while (shown_ > 0 && shown_ < static_cast<int64_t>(ends_.size()) &&
         ends_[static_cast<size_t>(shown_ - 1)] ==
             (shown_ > 1 ? ends_[static_cast<size_t>(shown_ - 2)] : 0)) {
    --shown_;
  }
  return true;
}

void watch_for_stop(const Tokenizer& tokenizer, const StreamDecoder::Options& options, Request& r) {
  if (options.stop.empty()) return;
  r.watch = std::make_shared<StopWatch>(tokenizer, options);
}

}  // namespace pagefold
