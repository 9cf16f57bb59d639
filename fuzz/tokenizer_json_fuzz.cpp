// deps: pagefold_text
// Any bytes as tokenizer.json: an error or a tokenizer that encodes and decodes.
#include <cstdint>

#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto made = pagefold::tokenizer_from_json(text, "");
  if (!made.ok()) return 0;
  const auto ids =
      (*made)->encode("Hello <s> w\xC3\xB6rld 123\n\n\xF0\x9F\x98\x80\xFF", true, false);
  (*made)->decode(ids, true);
  for (const int32_t id : ids) (*made)->token_bytes(id, false);
  return 0;
}
