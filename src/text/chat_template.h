// Chat templates: our own sandboxed subset of Jinja2, as Hugging Face tokenizers use it
// (trim_blocks and lstrip_blocks on, tojson without HTML escapes). Templates come with models and
// are untrusted: steps, recursion and output are limited.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace pagefold {

struct TemplateLimits {
  size_t max_source_bytes = 1 << 20;
  int max_depth = 64;
  int64_t max_steps = 10'000'000;
  size_t max_output_bytes = 16 << 20;
  // The clock of strftime_now, in seconds since 1970, shown as UTC; for tests. None: local time
  // now.
  std::optional<int64_t> fixed_time;
};

class ChatTemplate {
 public:
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Syntax errors name the line.
  static Result<ChatTemplate> parse(std::string_view source, const TemplateLimits& limits = {});
  // context: messages, tools, add_generation_prompt, bos_token, eos_token and whatever else the
  // template asks for. raise_exception in the template becomes an invalid-argument status with its
  // message.
  Result<std::string> render(const Json& context) const;
  const std::string& source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefold
