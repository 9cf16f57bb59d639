// deps: pagefold_server
// Request bodies through all parsers: the first byte picks the endpoint. Whatever comes, the answer
// is a request or an error whose JSON parses.
#include <cstdlib>

#include "../tests/server/fakes.h"

namespace {

using namespace pagefold;

struct Fixture {
  test::ByteTokenizer tokenizer;
  ChatTemplate chat = *ChatTemplate::parse(test::kChatMl);
  ApiModel model = test::byte_model(tokenizer, &chat);
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Fixture fixture;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Json body;
  auto error = parse_body(text, body);
  if (!error) {
    CompletionRequest completion;
    TokenizeRequest tokenize;
    std::vector<int32_t> ids;
    switch (data[0] % 4) {
      case 0:
        error = parse_completion(body, fixture.model, completion);
        break;
      case 1:
        error = parse_chat(body, fixture.model, completion);
        break;
      case 2:
        error = parse_tokenize(body, fixture.model, tokenize);
        break;
      default:
        error = parse_detokenize(body, fixture.model, ids);
    }
    if (!error && data[0] % 4 < 2) {
      for (const auto& p : completion.prompts) {
        if (p.tokens.empty()) std::abort();
        for (const int32_t id : p.tokens) {
          if (id < 0 || id >= test::ByteTokenizer::kVocab) std::abort();
        }
      }
    }
  }
  if (error && !parse_json(error->body()).ok()) std::abort();
  return 0;
}
