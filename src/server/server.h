// The server as the command line uses it: a loaded model and an engine behind HTTP.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/loaded_model.h"
#include "base/result.h"
#include "engine/engine.h"
#include "server/batch.h"

namespace pagefold {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: a free one, printed
  // Clients must send it as "Authorization: Bearer KEY"; empty: open.
  std::string api_key;
  // Names accepted in `model`, the first is reported. Empty: the model's own name.
  std::vector<std::string> served_model_names;
  // "auto": by the chat template; hermes, llama3_json, mistral, none.
  std::string tool_call_parser = "auto";
  bool auto_tool_choice = true;  // calls are looked for without tool_choice, too
  // "auto": by the chat template; deepseek_r1, qwen3, none.
  std::string reasoning_parser = "auto";
  std::string kv_keep;  // EngineOptions::kv_keep
  int max_connections = 1024;
  size_t max_body_bytes = 4 << 20;
  int io_threads = 1;
  std::string ssl_certfile, ssl_keyfile;  // PEM; both or none
  // Origins whose pages may read answers and send requests ("https://a.example", or "*").
  std::vector<std::string> allowed_origins;
  std::chrono::seconds drain_timeout{30};  // for running answers after SIGINT or SIGTERM
};

// Whether host and port can be listened on now: to be asked before a model is loaded for them.
// kInvalidArgument: the host is no IP address.
Status check_address(const ServerOptions& options);

// Answers the requests of a file in OpenAI's batch format (batch.h); "-": standard input or output.
Result<BatchCounts> run_batch_file(const LoadedModel& model, EngineCore& engine,
                                   const ServerOptions& options, const std::string& input,
                                   const std::string& output);

// Serves until SIGINT or SIGTERM. Prints to stderr, once it accepts connections,
//   pagefold is listening on http://HOST:PORT      (https:// with a certificate)
Status serve(const LoadedModel& model, EngineCore& engine, const ServerOptions& options);

}  // namespace pagefold
