#include <cstdio>

#include "api/engine_setup.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/pull/cache.h"
#include "engine/engine.h"
#include "server/server.h"

namespace pagefold {
namespace {

Json limits_json(const LoadedModel& model, const EngineCore& core, const ServerOptions& options) {
  const EngineConfig& config = core.config();
  return {{"model", options.served_model_names.front()},
          {"path", model.path},
          {"host", options.host},
          {"port", options.port},
          {"max_model_len", config.max_model_len},
          {"max_num_seqs", config.max_num_seqs},
          {"max_num_batched_tokens", config.max_num_batched_tokens},
          {"block_size", config.block_size},
          {"kv_cache_memory_bytes", config.kv_cache_memory_bytes},
          {"kv_cache_tokens", core.kv_capacity_tokens()},
          {"load_ms", model.load_seconds * 1e3}};
}

void print_examples(const LoadedModel& model, const ServerOptions& options) {
  if (options.port == 0) return;  // the address is known only when the server has printed it
  const std::string key = options.api_key.empty() ? "" : " -H 'Authorization: Bearer YOUR_KEY'";
  const bool v6 = options.host.find(':') != std::string::npos;
  const std::string host = v6 ? "[" + options.host + "]" : options.host;
  const std::string url =
      fmt::format("http{}://{}:{}", options.ssl_certfile.empty() ? "" : "s", host, options.port);
  const std::string body =
      model.chat_template
          ? R"(/v1/chat/completions -H 'Content-Type: application/json' -d '{"messages": [{"role": "user", "content": "Name the capital of France."}]}')"
          : R"(/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "The capital of France is"}')";
  print_text(stderr, fmt::format("Try:\n  curl{} {}{}\n", key, url, body));
}

Status start_and_serve(const ServeCommand& command) {
  ServerOptions options;
  options.host = command.host;
  options.port = static_cast<uint16_t>(command.port);
  options.api_key = command.api_key;
  options.ssl_certfile = command.ssl_certfile;
  options.ssl_keyfile = command.ssl_keyfile;
  options.allowed_origins = command.allowed_origins;
  options.max_connections = command.max_connections;
  options.max_body_bytes = command.max_body_bytes;
  options.drain_timeout = std::chrono::seconds(command.drain_timeout);
  PF_TRY(check_address(options));
  EngineOptions engine = command.engine;
  PF_ASSIGN(engine.model, resolve_model(engine.model));
  PF_ASSIGN(const EngineSetup setup,
            load_for_engine(engine, {.allow_packing_off = false,
                                     .min_kv_interval = command.min_kv_interval,
                                     .most_policy_cost = command.max_kv_cost == "linear"
                                                             ? PolicyCost::linear
                                                             : PolicyCost::quadratic}));
  const LoadedModel& model = setup.model;
  log::info("{}: loaded in {:.2f} s", model.path, model.load_seconds);
  PF_ASSIGN(const auto core, EngineCore::start(*model.network, setup.config));

  options.kv_keep = engine.kv_keep;
  options.tool_call_parser = command.tool_call_parser;
  options.auto_tool_choice = command.auto_tool_choice;
  options.reasoning_parser = command.reasoning_parser;
  options.served_model_names = {model.name};
  if (command.json) {
    print_text(stdout, dump_json(limits_json(model, *core, options)) + "\n");
    if (!stdout_ok()) return io_error("standard output does not take the answer");
  }
  print_examples(model, options);
  return serve(model, *core, options);
}

}  // namespace

int run_serve(const ServeCommand& command) {
  const Status done = start_and_serve(command);
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
