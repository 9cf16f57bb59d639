// Reads the generated tokens beside the engine, on the engine's thread: quick, and without
// exceptions. By it an answer ends with the same token whatever the speed of the front end, which
// hears of tokens later and can only cancel.
#pragma once

#include <cstdint>

namespace pagefold {

class AnswerWatch {
 public:
  virtual ~AnswerWatch() = default;
  // The next generated token. True: the answer ends with it.
  virtual bool ends_with(int32_t token) = 0;
  // Generated tokens, from the first one on, whose text the client gets whole; after ends_with()
  // was true.
  virtual int64_t shown_tokens() const = 0;
};

}  // namespace pagefold
