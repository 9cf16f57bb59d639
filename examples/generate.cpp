// The library in one page: load a model, ask it two things at once, read both answers as they come.
//
//   build/release/bin/example_generate MODEL.gguf "The capital of France is"
#include <cstdio>
#include <string>
#include <thread>

#include "pagefold/pagefold.h"

namespace {

int fail(const char* what, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  return 1;
}

// Streams are independent: each may be read by a thread of its own.
std::string read_all(pagefold::TextStream& stream) {
  std::string text;
  while (auto piece = stream.next()) text += *piece;
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
    return 2;
  }

  // Every option has a default; see pagefold/options.h.
  pagefold::EngineOptions options;
  options.model = argv[1];
  options.max_model_len = 1024;
  auto engine = pagefold::Engine::open(options);
  if (!engine.ok()) return fail("loading the model", engine.status());

  pagefold::SamplingOptions sampling;
  sampling.temperature = 0;  // greedy: the same answer every time
  sampling.max_tokens = 24;
  auto continuation = (*engine)->generate(argv[2], sampling);
  if (!continuation.ok()) return fail("generate", continuation.status());

  // A second request runs beside the first one, in the same batches.
  auto chat = (*engine)->chat({{"user", "Name three colours."}}, sampling);
  if (!chat.ok()) return fail("chat", chat.status());
  std::string chat_text;
  std::thread reader([&] { chat_text = read_all(**chat); });

  std::printf("%s", argv[2]);
  while (auto piece = (*continuation)->next()) {
    std::printf("%s", piece->c_str());
    std::fflush(stdout);
  }
  reader.join();

  const pagefold::Usage usage = (*continuation)->usage();
  std::printf("\n[%s: %lld tokens in, %lld out, %llu bytes of KV cache]\n",
              (*continuation)->finish_reason().c_str(), static_cast<long long>(usage.prompt_tokens),
              static_cast<long long>(usage.completion_tokens),
              static_cast<unsigned long long>(usage.kv_bytes));
  std::printf("chat: %s\n", chat_text.c_str());
}
