// The words of kv.keep: what no policy may evict from a prompt.
//
//   system,tools,user,assistant,tool   messages of a role; tools: the definitions of tools
//   3 or -1                            the message of that index; negative ones count from the end
//   100:120                            prompt tokens [begin, end)
//   none                               nothing, whatever the server keeps by default
//
// Roles and indices become spans of tokens where the conversation is written (chat_prompt.h); the
// engine knows spans alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/plan.h"

namespace pagefold {

struct KeepWish {
  std::vector<std::string> roles;  // "system" stands for "developer" too
  bool tools = false;
  std::vector<int64_t> messages;  // negative: from the end
  std::vector<KeepSpan> spans;    // of tokens, as given
  // Not the request's own words: what does not exist is left out rather than refused.
  bool lenient = false;
  bool needs_messages() const { return tools || !roles.empty() || !messages.empty(); }
};

// kInvalidArgument: what is no such word, with the known ones; none beside others.
Result<KeepWish> parse_keep(std::string_view words);
// The same for the default of a server, which knows roles and tools alone.
Result<KeepWish> parse_kept_roles(std::string_view words);

// Sorted, overlapping and adjacent ones joined.
std::vector<KeepSpan> joined_spans(std::vector<KeepSpan> spans);
// As the engine reads them: "0:32,100:120".
std::string spans_text(const std::vector<KeepSpan>& spans);

}  // namespace pagefold
