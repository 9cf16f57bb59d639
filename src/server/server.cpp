#include "server/server.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>

#include "server/http_server.h"
#include "server/openai_api.h"

namespace pagefold {
namespace {

void choose_parsers(const ServerOptions& options, ApiModel& model) {
  const std::string& tools = options.tool_call_parser;
  if (tools == "hermes") model.tools = ToolDialect::hermes;
  if (tools == "llama3_json") model.tools = ToolDialect::llama3_json;
  if (tools == "mistral") model.tools = ToolDialect::mistral;
  model.auto_tools = options.auto_tool_choice && tools != "none";
  const std::string& reasoning = options.reasoning_parser;
  if (reasoning == "none") model.reasoning = ReasoningDialect::none;
  if (reasoning == "qwen3") model.reasoning = ReasoningDialect::qwen3;
  if (reasoning == "deepseek_r1") model.reasoning = ReasoningDialect::deepseek_r1;
}

ApiModel served_model(const LoadedModel& model, const EngineCore& engine,
                      const ServerOptions& options) {
  ApiModel served =
      make_api_model(model, engine.config().max_model_len, options.served_model_names);
  choose_parsers(options, served);
  served.metrics = std::make_shared<RequestMetrics>();
  served.compresses = !engine.config().kv.empty();
  served.keep = options.kv_keep;
  return served;
}

HttpServerOptions http_options(const ServerOptions& options) {
  HttpServerOptions http;
  http.host = options.host;
  http.port = options.port;
  http.io_threads = options.io_threads;
  http.max_connections = options.max_connections;
  http.max_body_bytes = options.max_body_bytes;
  http.tls_certificate = options.ssl_certfile;
  http.tls_key = options.ssl_keyfile;
  http.handle_signals = true;
  http.grace = options.drain_timeout;
  return http;
}

}  // namespace

Status check_address(const ServerOptions& options) {
  return check_listen_address(http_options(options));
}

Result<BatchCounts> run_batch_file(const LoadedModel& model, EngineCore& engine,
                                   const ServerOptions& options, const std::string& input,
                                   const std::string& output) {
  std::ifstream in;
  if (input != "-") {
    in.open(input, std::ios::binary);
    if (!in) return io_error("--input-file: {} cannot be read: {}", input, std::strerror(errno));
  }
  std::error_code ignored;
  if (input != "-" && output != "-" && std::filesystem::equivalent(input, output, ignored)) {
    return bad_input("--output-file: {} is the input", output);
  }
  std::ofstream out;
  if (output != "-") {
    out.open(output, std::ios::binary | std::ios::trunc);
    if (!out) {
      return io_error("--output-file: {} cannot be written: {}", output, std::strerror(errno));
    }
  }
  EngineCorePort port(engine);
  OpenAiApi api(served_model(model, engine, options), port, {});
  // Some wait in the queue, so that the batch stays full when one ends.
  const BatchOptions batch{.in_flight = 2 * engine.config().max_num_seqs};
  return run_batch(api, input == "-" ? std::cin : in, output == "-" ? std::cout : out, batch);
}

Status serve(const LoadedModel& model, EngineCore& engine, const ServerOptions& options) {
  EngineCorePort port(engine);
  OpenAiApi api(served_model(model, engine, options), port,
                {.api_key = options.api_key, .allowed_origins = options.allowed_origins});
  PF_ASSIGN(const auto server, HttpServer::bind(http_options(options), api));
  // A line by itself, whatever the log level: scripts wait for it. IPv6 addresses go in brackets.
  const bool v6 = options.host.find(':') != std::string::npos;
  std::fprintf(stderr, "pagefold is listening on http%s://%s%s%s:%d\n",
               options.ssl_certfile.empty() ? "" : "s", v6 ? "[" : "", options.host.c_str(),
               v6 ? "]" : "", server->port());
  std::fflush(stderr);
  server->run();
  return ok_status();
}

}  // namespace pagefold
