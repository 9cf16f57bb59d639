#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>

#include "api/open_engine.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pull/cache.h"

namespace pagefold {
namespace {

constexpr std::string_view kHelp =
    "/reset starts over, /exit (or ctrl-D) ends, ctrl-C stops an answer; a line that ends with \\ "
    "goes on\n";

class Conversation {
 public:
  Conversation(Engine& engine, const ChatCommand& command, InterruptWatcher& interrupts,
               double load_s)
      : engine_(engine),
        command_(command),
        interrupts_(interrupts),
        load_s_(load_s),
        sampling_(merge_sampling(engine.default_sampling(), command.sampling, command.given)) {
    reset();
  }

  void reset() {
    messages_.clear();
    if (!command_.system.empty()) messages_.push_back({"system", command_.system});
  }

  // A refused turn leaves the conversation as it was.
  Status turn(std::string text) {
    messages_.push_back({"user", std::move(text)});
    auto stream = engine_.chat(messages_, sampling_, command_.engine.kv);
    if (!stream.ok()) {
      messages_.pop_back();
      return stream.status();
    }
    std::function<void(std::string_view)> show;
    if (!command_.json) show = [](std::string_view piece) { print_text(stdout, piece); };
    Answer answer = read_answer(**stream, interrupts_, show);
    if (!command_.json) print_text(stdout, "\n");
    if (command_.stats) print_text(stderr, stats_text(answer, load_s_));
    if (answer.finish_reason == "error") {
      messages_.pop_back();
      return io_error("the engine ended the answer with an error");
    }
    // What was said before ctrl-C stays part of the conversation.
    turns_.push_back({{"finish_reason", answer.finish_reason},
                      {"usage", usage_json(answer.usage)},
                      {"timings", timings_json(answer, load_s_)}});
    messages_.push_back({"assistant", std::move(answer.text)});
    return ok_status();
  }

  Json to_json() const {
    Json messages = Json::array();
    for (const Message& m : messages_) {
      messages.push_back({{"role", m.role}, {"content", m.content}});
    }
    return {{"messages", std::move(messages)}, {"turns", turns_}};
  }

 private:
  Engine& engine_;
  const ChatCommand& command_;
  InterruptWatcher& interrupts_;
  double load_s_;
  SamplingOptions sampling_;
  std::vector<Message> messages_;
  Json turns_ = Json::array();
};

// One input, joined over lines that end with a backslash. nullopt: the end of the input.
std::optional<std::string> read_input(bool terminal) {
  std::string text, line;
  bool more = false;
  do {
    if (terminal) print_text(stderr, more ? ". " : "> ");
    if (!std::getline(std::cin, line)) return more ? std::optional(text) : std::nullopt;
    more = line.ends_with('\\');
    if (more) line.back() = '\n';
    text += line;
  } while (more);
  return text;
}

Status converse(Conversation& conversation, InterruptWatcher& interrupts) {
  const bool terminal = ::isatty(0) == 1;
  if (terminal) print_text(stderr, kHelp);
  while (true) {
    // No answer is running: ctrl-C ends the program. The read below cannot be woken otherwise.
    interrupts.set([] { ::_exit(kDone); });
    auto input = read_input(terminal);
    if (!input) break;
    if (*input == "/exit" || *input == "/quit") break;
    if (*input == "/reset") {
      conversation.reset();
      print_text(stderr, "(a new conversation)\n");
    } else if (*input == "/help") {
      print_text(stderr, kHelp);
    } else if (input->starts_with('/')) {
      print_text(stderr, "unknown command; " + std::string(kHelp));
    } else if (input->find_first_not_of(" \t\n") != std::string::npos) {
      const Status done = conversation.turn(std::move(*input));
      // In a script a refused turn is a failure; a person may go on.
      if (!done.ok() && !terminal) return done;
      if (!done.ok()) report(done);
    }
  }
  return ok_status();
}

Status chat(const ChatCommand& command) {
  EngineOptions options = command.engine;
  PF_ASSIGN(options.model, resolve_model(options.model));
  InterruptWatcher interrupts;
  interrupts.set([] { ::_exit(kFailed); });
  const auto start = std::chrono::steady_clock::now();
  FirstAnswer first{.open_prompt = true};
  first.sampling = [&command](const SamplingOptions& defaults) {
    return merge_sampling(defaults, command.sampling, command.given);
  };
  PF_ASSIGN(const auto engine, open_engine(options, first));
  const double load_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Conversation conversation(*engine, command, interrupts, load_s);
  const Status done = converse(conversation, interrupts);
  if (command.json) print_text(stdout, dump_json(conversation.to_json()) + "\n");
  PF_TRY(done);
  return stdout_ok() ? ok_status() : io_error("standard output does not take the answer");
}

}  // namespace

int run_chat(const ChatCommand& command) {
  const Status done = chat(command);
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
