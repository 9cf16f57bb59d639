// Flags of `pagefold quantize`.
#include <fmt/ranges.h>

#include "cli/args_flags.h"

namespace pagefold {
namespace {

void add_method(CLI::App& app, QuantizeOptions& o) {
  app.option_defaults()->group("Method");
  MethodOptions& how = o.how;
  word(app, "--method", o.method, {"awq", "gptq", "fp8", "bnb-nf4", "bnb-int8", "none"},
       "format of the weights; none: not quantised")
      ->required();
  integer(app, "--group-size", how.group, 16, 1 << 20,
          "inputs that share a scale (awq, gptq); default: the largest of 128, 64, 32 that fits");
  flag(app, "--bits", "bits of a weight: 2, 3, 4 (default) or 8 (gptq)",
       [&how](const std::string& text) -> Status {
         PF_TRY(read_integer(text, 2, 8, how.bits));
         return how.bits < 5 || how.bits == 8 ? ok_status()
                                              : bad_input("{}: must be 2, 3, 4 or 8", text);
       });
  switch_flag(app, "sym", how.symmetric, "a fixed zero point (gptq; default on)");
  switch_flag(app, "desc-act", how.act_order, "inputs with the largest values first (gptq)");
  real(app, "--damp", how.damp, 0, 1, true,
       "share of the mean that is added to the diagonal (gptq; default 0.01)");
  switch_flag(app, "clip", how.clip, "search the range of each group, too (awq; default on)");
  word(app, "--fp8-scales", how.fp8_scales, {"channel", "tensor", "block"},
       "a scale an output, a matrix, or 128 x 128 values: 64, 32 or 16 where 128 does not fit "
       "(fp8)");
  switch_flag(app, "double-quant", how.double_quant, "quantise the scales (bnb-nf4; default on)");
}

// A flag of another method would be ignored: whoever asks for 3 bits must not get 4.
void refuse_other_methods(CLI::App& app, const std::string& method) {
  const std::pair<const char*, std::vector<std::string>> of[] = {
      {"--group-size", {"awq", "gptq"}}, {"--bits", {"gptq"}},           {"--sym", {"gptq"}},
      {"--desc-act", {"gptq"}},          {"--damp", {"gptq"}},           {"--clip", {"awq"}},
      {"--fp8-scales", {"fp8"}},         {"--double-quant", {"bnb-nf4"}}};
  for (const auto& [flag, methods] : of) {
    if (app.get_option(flag)->count() == 0) continue;
    if (std::find(methods.begin(), methods.end(), method) != methods.end()) continue;
    reject(flag, bad_input("is not for {}, but for {}", method, fmt::join(methods, " and ")));
  }
}

void add_text(CLI::App& app, QuantizeCommand& c) {
  app.option_defaults()->group("Text");
  QuantizeOptions& o = c.options;
  text_flag(app, "--text", c.text_file,
            "a text to calibrate on and to measure with; without one the model writes its own");
  count(app, "-n,--tokens", o.tokens, 64,
        "most tokens to calibrate on (default 16384 of a text, 8192 of its own)");
  flag(app, "--eval-tokens", "most tokens to measure with (default 1024); 0: nothing is measured",
       [&o](const std::string& text) { return read_integer(text, 0, 1 << 24, o.held_out); });
  add_seed(app, o.seed, "stream of random numbers of the text the model writes");
}

}  // namespace

void add_quantize(CLI::App& app, QuantizeCommand& c) {
  QuantizeOptions& o = c.options;
  add_model(app, o.model);
  text_flag(app, "-o,--output", o.output, "folder to make")->required();
  switch_flag(app, "force", o.force, "replace the model in a folder that is not empty");
  word(app, "--dtype", o.dtype, {"auto", "float16", "half", "bfloat16", "float32", "float"},
       "type of what is not quantised; auto = float16 for awq and gptq, else the model's own");
  count(app, "--max-shard-size", o.max_shard_bytes, 1, "most bytes of tensors a file (default 5g)");
  integer(app, "-t,--threads", o.threads, 0, 1024, "compute threads; 0 = one a usable core");
  word(app, "--isa", o.isa, {"auto", "scalar", "avx2", "avx512"}, "instruction set");
  add_json(app, c.json);
  add_method(app, o);
  app.parse_complete_callback([&app, &o] { refuse_other_methods(app, o.method); });
  add_text(app, c);
  app.option_defaults()->group("Options");
}

}  // namespace pagefold
