#include "engine/request.h"

#include <utility>

#include "base/check.h"

namespace pagefold {

std::string_view finish_reason_name(FinishReason r) {
  switch (r) {
    case FinishReason::none:
      return "none";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "abort";
    case FinishReason::error:
      return "error";
  }
  return "none";
}

bool Generation::poll(std::vector<TokenEvent>& events) {
  // Swapping hands the consumer's storage back to the engine, so a steady stream allocates nothing.
  events.clear();
  std::lock_guard lock(mutex_);
  events.swap(events_);
  return !(finished_ && events.empty());
}

void Generation::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return finished_ || !events_.empty(); });
}

bool Generation::finished() const {
  std::lock_guard lock(mutex_);
  return finished_;
}

void Generation::on_change(std::function<void()> notify) {
  std::lock_guard callback_lock(callback_mutex_);
  callback_ = std::move(notify);
  bool ready = false;
  {
    std::lock_guard lock(mutex_);
    ready = finished_ || !events_.empty();
  }
  if (ready && callback_) callback_();
}

void Generation::push(TokenEvent event) {
  std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  dirty_ = true;
}

void Generation::finish(GenerationResult result) {
  std::lock_guard lock(mutex_);
  PF_CHECK(!finished_, "a generation ends once");
  result_ = std::move(result);
  finished_ = true;
  dirty_ = true;
}

void Generation::notify() {
  {
    std::lock_guard lock(mutex_);
    if (!dirty_) return;
    dirty_ = false;
  }
  changed_.notify_all();
  std::lock_guard callback_lock(callback_mutex_);
  if (callback_) callback_();
}

}  // namespace pagefold
