// Flags of `pagefold serve`.
#include "base/json.h"
#include "cli/args_flags.h"

namespace pagefold {
namespace {

// What a browser sends as Origin: a scheme, a host, perhaps a port; no path.
Status check_origin(const std::string& origin) {
  if (origin == "*") return ok_status();
  const size_t host = origin.find("://");
  if (host == std::string::npos || host == 0 || host + 3 == origin.size() ||
      origin.find_first_of("/ *", host + 3) != std::string::npos) {
    return bad_input("'{}' is no origin: write it as https://HOST or https://HOST:PORT, or *",
                     origin);
  }
  return ok_status();
}

Status read_origins(Text text, std::vector<std::string>& out) {
  out.clear();
  if (text.starts_with('[')) {
    PF_ASSIGN(const Json list, parse_json(text));
    for (const Json& item : list) {
      if (!item.is_string()) return bad_input("expected a list of strings");
      out.push_back(item.get<std::string>());
    }
  } else {
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      out.push_back(text.substr(at, comma - at));
      at = comma + 1;
    }
  }
  for (const std::string& origin : out) PF_TRY(check_origin(origin));
  return ok_status();
}

// Who may connect, how, and how much of it.
void add_network(CLI::App& app, ServeCommand& c) {
  app.option_defaults()->group("Connections");
  text_flag(app, "--ssl-certfile", c.ssl_certfile,
            "PEM file with the certificate and those above it: the server speaks TLS");
  text_flag(app, "--ssl-keyfile", c.ssl_keyfile, "PEM file with the certificate's key");
  flag(app, "--allowed-origins",
       "pages of these origins may call the server (CORS): a JSON list, names with commas between, "
       "or *; default: none",
       [&c](Text text) { return read_origins(text, c.allowed_origins); });
  integer(app, "--max-connections", c.max_connections, 1, 1 << 20,
          "open connections; one more gets 503 (default 1024)");
  count(app, "--max-body-bytes", c.max_body_bytes, 1024,
        "largest request body (default 4M); a larger one gets 413");
  integer(app, "--drain-timeout", c.drain_timeout, 0, 86400,
          "seconds that running answers get after SIGTERM (default 30)");
  app.option_defaults()->group("Options");
}

// A server gives memory back: `off` is refused (load_for_engine).
constexpr const char* kServedPacking = "order, fill, block";

// How text of the model becomes calls and reasoning.
template <class Command>
void add_parsers(CLI::App& app, Command& c) {
  word(app, "--tool-call-parser", c.tool_call_parser,
       {"auto", "hermes", "llama3_json", "mistral", "none"},
       "how the model writes calls of tools; auto = by its chat template");
  switch_flag(app, "enable-auto-tool-choice", c.auto_tool_choice,
              "look for calls when tool_choice is auto (default on)");
  word(app, "--reasoning-parser", c.reasoning_parser, {"auto", "deepseek_r1", "qwen3", "none"},
       "how the model marks its reasoning; auto = by its chat template");
}

}  // namespace

void add_serve(CLI::App& app, ServeCommand& c) {
  c.engine.enable_prefix_caching = true;
  c.engine.kv_keep = "system,tools";
  add_engine(app, c.engine, kServedPacking);
  text_flag(app, "--served-model-name", c.engine.served_model_name,
            "name in requests and answers; default: the file's or folder's name");
  text_flag(app, "--host", c.host, "address to listen on (default 127.0.0.1)");
  integer(app, "--min-kv-interval", c.min_kv_interval, 1, 1 << 20,
          "least kv.interval that a request may ask for");
  word(app, "--max-kv-cost", c.max_kv_cost, {"linear", "quadratic"},
       "most expensive policies that a request may ask for; linear refuses rkv");
  integer(app, "--port", c.port, 0, 65535, "port (default 8000); 0 = any free one");
  flag(app, "--api-key", "clients must send this key; also PAGEFOLD_API_KEY",
       [&c](Text text) -> Status {
         if (text.empty()) return bad_input("the key is empty");
         c.api_key = text;
         return ok_status();
       })
      ->envname("PAGEFOLD_API_KEY");
  add_parsers(app, c);
  add_json(app, c.json, "print one JSON object with the server's limits before it listens");
  add_network(app, c);
}

void add_run_batch(CLI::App& app, RunBatchCommand& c) {
  c.engine.enable_prefix_caching = true;
  add_engine(app, c.engine, kServedPacking);
  text_flag(app, "-i,--input-file", c.input,
            "requests in OpenAI's batch format, one a line; - = standard input")
      ->required();
  text_flag(app, "-o,--output-file", c.output,
            "where the answers go, one a line in the same order; - = standard output")
      ->required();
  text_flag(app, "--served-model-name", c.engine.served_model_name,
            "name in requests and answers; default: the file's or folder's name");
  add_parsers(app, c);
  add_json(app, c.json, "print one JSON object with the counts");
}

}  // namespace pagefold
