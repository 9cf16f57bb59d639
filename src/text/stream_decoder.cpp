#include "text/stream_decoder.h"

#include <algorithm>

#include "text/utf8.h"

namespace pagefold {
namespace {

struct Found {
  size_t begin = std::string::npos, end = std::string::npos;
  const std::string* stop = nullptr;
};

// The stop string that is complete first; of those that end together the longest. So the result
// does not depend on how the text was cut into tokens.
Found find_stop(std::string_view text, const std::vector<std::string>& stops) {
  Found best;
  for (const std::string& stop : stops) {
    const size_t begin = text.find(stop);
    if (begin == std::string_view::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best.end || (end == best.end && begin < best.begin)) best = {begin, end, &stop};
  }
  return best;
}

// Length of the longest suffix that is a beginning of a stop string.
size_t open_suffix(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = std::min(text.size(), stop.size() - 1); n > longest; --n) {
      if (text.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

// The same when the last `half` bytes are an unfinished character: they may still be completed, or
// turn out broken and become U+FFFD, which a stop string may contain.
size_t open_suffix(std::string_view text, size_t half, const std::vector<std::string>& stops) {
  size_t longest = std::max(half, open_suffix(text, stops));
  if (half == 0) return longest;
  const std::string_view whole = text.substr(0, text.size() - half);
  for (const std::string& stop : stops) {
    for (size_t at = stop.find(kReplacementChar); at != std::string::npos;
         at = stop.find(kReplacementChar, at + 1)) {
      if (at + half > longest && whole.ends_with(std::string_view(stop).substr(0, at))) {
        longest = at + half;
      }
    }
  }
  return longest;
}

// Repairs text in place; the number of bytes at the end that may still become a character.
size_t repair(std::string& text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    if (step.incomplete) {
      const size_t open = text.size() - pos;
      text = out.append(text, pos);
      return open;
    }
    if (step.valid) {
      out.append(text, pos, step.bytes);
    } else {
      out += kReplacementChar;
    }
    pos += step.bytes;
  }
  text = std::move(out);
  return 0;
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  std::erase_if(options_.stop, [](const std::string& stop) { return stop.empty(); });
}

std::string StreamDecoder::push(int32_t token) {
  if (stopped()) return {};
  const auto& shown = options_.shown_special;
  const bool skip =
      options_.skip_special && std::find(shown.begin(), shown.end(), token) == shown.end();
  std::string bytes = tokenizer_.token_bytes(token, skip);
  if (bytes.empty()) return {};
  if (first_ && options_.at_text_start && tokenizer_.strips_first_space() && bytes[0] == ' ') {
    bytes.erase(0, 1);
  }
  first_ = false;
  pending_ += bytes;
  return release(repair(pending_));
}

// What of pending_ is final; its last `half` bytes are an unfinished character.
std::string StreamDecoder::release(size_t half) {
  const size_t whole = pending_.size() - half;
  const Found found = find_stop(std::string_view(pending_).substr(0, whole), options_.stop);
  if (found.stop != nullptr) {
    matched_ = *found.stop;
    pending_.resize(options_.include_stop ? found.end : found.begin);
    return std::exchange(pending_, {});
  }
  const size_t held = open_suffix(pending_, half, options_.stop);
  std::string ready = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, ready.size());
  return ready;
}

std::string StreamDecoder::finish() {
  if (stopped()) return {};
  pending_ = sanitize_utf8(pending_);
  std::string text = release(0);  // a half character that became U+FFFD may complete a stop string
  return text + std::exchange(pending_, {});
}

}  // namespace pagefold
