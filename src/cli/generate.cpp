#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "api/open_engine.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pull/cache.h"

namespace pagefold {
namespace {

constexpr size_t kMaxPromptBytes = 64 << 20;

Result<std::string> read_stream(std::FILE* in, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, in)) {
    text.append(buffer, n);
    if (text.size() > kMaxPromptBytes) {
      return bad_input("{}: more than {} bytes", name, kMaxPromptBytes);
    }
  }
  if (std::ferror(in)) return io_error("{}: {}", name, std::strerror(errno));
  return text;
}

// Pipes too: a shell's <(command) names one.
Result<std::string> read_text_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             &std::fclose);
  if (!file) return io_error("{}: {}", path, std::strerror(errno));
  return read_stream(file.get(), path);
}

Result<std::string> prompt_of(const GenerateCommand& command) {
  if (command.has_prompt) return command.prompt;
  if (command.file == "-") return read_stream(stdin, "standard input");
  return read_text_file(command.file);
}

Result<AnswerForm> form_of(const GenerateCommand& command) {
  AnswerForm form;
  form.json_schema = command.json_schema;
  form.regex = command.regex;
  form.grammar = command.grammar;
  const int given = (command.json_schema.empty() ? 0 : 1) + (command.regex.empty() ? 0 : 1) +
                    (command.grammar.empty() ? 0 : 1) + (command.json_schema_file.empty() ? 0 : 1) +
                    (command.grammar_file.empty() ? 0 : 1);
  if (given > 1) return bad_input("only one of --json-schema, --regex and --grammar can be given");
  if (!command.json_schema_file.empty()) {
    PF_ASSIGN(form.json_schema, read_text_file(command.json_schema_file));
  }
  if (!command.grammar_file.empty()) {
    PF_ASSIGN(form.grammar, read_text_file(command.grammar_file));
  }
  return form;
}

Result<FirstAnswer> answer_of(const GenerateCommand& command) {
  FirstAnswer first;
  PF_ASSIGN(first.prompt, prompt_of(command));
  PF_ASSIGN(first.form, form_of(command));
  if (command.chat) {
    if (!command.system.empty()) first.messages.push_back({"system", command.system});
    first.messages.push_back({"user", first.prompt});
  }
  first.sampling = [&command](const SamplingOptions& defaults) {
    return merge_sampling(defaults, command.sampling, command.given);
  };
  first.kv = command.engine.kv;
  return first;
}

Result<std::unique_ptr<TextStream>> submit(Engine& engine, const FirstAnswer& first) {
  const SamplingOptions sampling = first.sampling(engine.default_sampling());
  if (first.messages.empty()) {
    return engine.generate(first.prompt, sampling, first.kv, first.form);
  }
  return engine.chat(first.messages, sampling, first.kv, first.form);
}

Status generate(const GenerateCommand& command) {
  PF_ASSIGN(const FirstAnswer first, answer_of(command));
  EngineOptions options = command.engine;
  PF_ASSIGN(options.model, resolve_model(options.model));
  InterruptWatcher interrupts;
  interrupts.set([] { ::_exit(kFailed); });  // while the model is loading
  const auto start = std::chrono::steady_clock::now();
  PF_ASSIGN(const auto engine, open_engine(options, first));
  const double load_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  PF_ASSIGN(const auto stream, submit(*engine, first));
  std::function<void(std::string_view)> show;
  if (!command.json) show = [](std::string_view piece) { print_text(stdout, piece); };
  const Answer answer = read_answer(*stream, interrupts, show);

  if (command.json) {
    const Json object = {{"text", answer.text},
                         {"token_ids", answer.token_ids},
                         {"finish_reason", answer.finish_reason},
                         {"usage", usage_json(answer.usage)},
                         {"timings", timings_json(answer, load_s)}};
    print_text(stdout, dump_json(object) + "\n");
  } else {
    print_text(stdout, "\n");
  }
  if (command.stats) print_text(stderr, stats_text(answer, load_s));
  if (!stdout_ok()) return io_error("standard output does not take the answer");
  if (answer.finish_reason == "error") return io_error("the engine ended the answer with an error");
  if (answer.finish_reason == "abort") return io_error("interrupted");
  return ok_status();
}

}  // namespace

int run_generate(const GenerateCommand& command) {
  const Status done = generate(command);
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
