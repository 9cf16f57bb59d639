// deps: pagefold_text
#include "base/json.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pagefold;
  static const Json context = *parse_json(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"h\u00e9 <b>"},
      {"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"a":1.5}}}]}],
      "tools":[{"type":"function"}],"add_generation_prompt":true,"bos_token":"<s>","n":-3})");
  TemplateLimits limits;
  limits.max_steps = 20000;
  limits.max_output_bytes = 1 << 16;
  const auto t = ChatTemplate::parse({reinterpret_cast<const char*>(data), size}, limits);
  if (t.ok()) static_cast<void>(t->render(context).ok());
  return 0;
}
