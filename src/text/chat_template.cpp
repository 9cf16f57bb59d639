#include "text/chat_template.h"

#include "text/jinja/interp.h"
#include "text/jinja/parser.h"

namespace pagefold {

struct ChatTemplate::Impl {
  std::string source;
  TemplateLimits limits;
  jinja::Program program;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const TemplateLimits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return exhausted("chat template: {} bytes are more than the limit of {}", source.size(),
                     limits.max_source_bytes);
  }
  auto program = jinja::parse_program(source, limits.max_depth);
  if (!program.ok()) return with_context(program.status(), "chat template");
  return ChatTemplate(
      std::make_unique<Impl>(Impl{std::string(source), limits, *std::move(program)}));
}

Result<std::string> ChatTemplate::render(const Json& context) const {
  auto text = jinja::Interp(impl_->program, impl_->limits).run(context);
  if (text.ok()) return text;
  // What the template itself raised reaches the client word for word.
  if (text.status().GetPayload(jinja::kRaised).has_value()) {
    return Status(absl::StatusCode::kInvalidArgument, text.status().message());
  }
  return with_context(text.status(), "chat template");
}

const std::string& ChatTemplate::source() const { return impl_->source; }

}  // namespace pagefold
