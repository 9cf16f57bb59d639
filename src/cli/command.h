// What a command line asks for, as plain data: made by args.cpp, carried out by one file a
// subcommand.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/kv_format.h"
#include "bench/load.h"
#include "bench/local.h"
#include "eval/eval.h"
#include "pagefold/calc.h"
#include "pagefold/options.h"
#include "quantize/quantize_options.h"

namespace pagefold {

// Exit codes of the program.
enum ExitCode : int { kDone = 0, kFailed = 1, kWrongUse = 2 };

// --help and --version: text for stdout.
struct ShowText {
  std::string text;
};
struct ServeCommand {
  EngineOptions engine;
  std::string host = "127.0.0.1";
  int64_t min_kv_interval = 1;
  std::string max_kv_cost = "quadratic";  // or linear
  int port = 8000;
  std::string api_key;
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  bool auto_tool_choice = true;
  std::string ssl_certfile, ssl_keyfile;
  std::vector<std::string> allowed_origins;
  int max_connections = 1024;
  size_t max_body_bytes = 4 << 20;
  int drain_timeout = 30;  // seconds
  bool json = false;
};
struct RunBatchCommand {
  EngineOptions engine;
  std::string input, output;
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  bool auto_tool_choice = true;
  bool json = false;
};
// Sampling flags that were given; the model's defaults fill the others.
struct GivenSampling {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
};
// request: all other options. Precedence: flag, the model's default, neutral.
SamplingOptions merge_sampling(const SamplingOptions& model_defaults,
                               const SamplingOptions& request, const GivenSampling& given);

struct GenerateCommand {
  EngineOptions engine;
  SamplingOptions sampling;
  GivenSampling given;
  std::string prompt;
  bool has_prompt = false;
  std::string file;                                                         // "-": standard input
  std::string system;                                                       // with chat only
  std::string json_schema, json_schema_file, regex, grammar, grammar_file;  // one at most
  bool chat = false, stats = false, json = false;
};
struct ChatCommand {
  EngineOptions engine;
  SamplingOptions sampling;
  GivenSampling given;
  std::string system;
  bool stats = false, json = false;
};
struct InspectCommand {
  std::string model;
  std::string dtype = "auto", quantization = "auto", activations = "auto";
  KvTypeWords kv;
  bool tensors = false, json = false;
};
struct ReclaimCommand {
  int64_t tokens = 16000;
  int block_size = 16;
  double keep = 0.1;
  int layers = 1, kv_heads = 0;  // 0: 1, or 8 with the layout `shared`
  int head_dim = 64;
  KvTypeWords kv = {"bfloat16", "auto", kAutoKvGroup};
  std::string layout = "per-head";
  std::string packing = "all", survivors = "all";  // or one of them
  uint64_t seed = 0;
  bool json = false;
};
struct CalibrateCommand {
  EngineOptions engine;
  std::string text;    // a file; empty: the model writes its own
  std::string output;  // a path, a name, or empty: see calibration_output
  int64_t tokens = 0;  // most tokens of text; 0: the default of calibrate()
  uint64_t seed = 0;
  bool json = false;
};
struct QuantizeCommand {
  QuantizeOptions options;
  std::string text_file;
  bool json = false;
};
struct CalcCommand {
  CalcRequest request;
  bool presets = false, json = false;
};
struct EvalCommand {
  eval::EvalOptions options;
  bool json = false;
};
struct BenchCommand {
  bench::LocalOptions local;
  bench::LoadOptions load;  // its urls say which of the two is meant
  std::string output, line;
  bool json = false;
};
struct PullCommand {
  std::string model;
  bool json = false;
};

using Action = std::variant<ShowText, ServeCommand, GenerateCommand, ChatCommand, InspectCommand,
                            PullCommand, ReclaimCommand, CalibrateCommand, QuantizeCommand,
                            CalcCommand, EvalCommand, RunBatchCommand, BenchCommand>;

// Each returns an exit code and says on stderr what failed.
int run_serve(const ServeCommand& command);
int run_run_batch(const RunBatchCommand& command);
int run_generate(const GenerateCommand& command);
int run_chat(const ChatCommand& command);
int run_inspect(const InspectCommand& command);
int run_reclaim(const ReclaimCommand& command);
int run_calibrate(const CalibrateCommand& command);
int run_quantize(const QuantizeCommand& command);
int run_calc(const CalcCommand& command);
int run_eval(const EvalCommand& command);
int run_bench(const BenchCommand& command);
int run_pull(const PullCommand& command);

}  // namespace pagefold
