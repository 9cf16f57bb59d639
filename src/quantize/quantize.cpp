#include "quantize/quantize.h"

#include <algorithm>

#include "base/dtype.h"
#include "quantize/conversion.h"
#include "quantize/text_files.h"

namespace pagefold {
namespace {

constexpr int64_t kTextTokens = 16384, kOwnTokens = 8192, kWindow = 2048;

Result<DType> resolve_dtype(const QuantizeOptions& options, const SourceModel& source) {
  if (options.dtype != "auto") {
    auto dtype = parse_dtype(options.dtype);
    return dtype.ok() ? dtype : with_context(dtype.status(), "--dtype");
  }
  if (options.method == "awq" || options.method == "gptq") return DType::f16;
  PF_ASSIGN(const DTypeChoice choice, choose_dtype("auto", stored_types(source.files())));
  return choice.dtype;
}

Status check_shapes(const SourceModel& source, const WeightMethod& method) {
  const LayerTensors& l = source.layer(0);
  for (const SourceTensor* t : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) {
    const Status fits = method.check(t->rows(), t->cols());
    if (!fits.ok()) return with_context(fits, t->name);
  }
  return ok_status();
}

Result<CalibrationText> read_text(const QuantizeOptions& options, const SourceModel& source,
                                  bool calibrates) {
  CalibrationTextOptions o;
  o.model = options.model;
  o.held_out = options.held_out;
  if (calibrates)
    o.tokens = options.tokens > 0     ? options.tokens
               : options.text.empty() ? kOwnTokens
                                      : kTextTokens;
  o.window = std::min(kWindow, source.config().shape.context_length);
  o.seed = options.seed;
  o.threads = options.threads;
  o.isa = options.isa;
  o.stop = options.stop;
  if (o.tokens + o.held_out == 0) return CalibrationText();
  if (!options.text.empty()) return tokens_of_text(options.text, o);
  if (options.progress) {
    o.progress = [&](uint64_t done, uint64_t total) {
      options.progress("writing text", done, total);
    };
  }
  return own_text(o);
}

int64_t n_tokens(const std::vector<std::vector<int32_t>>& windows) {
  int64_t n = 0;
  for (const auto& w : windows) n += static_cast<int64_t>(w.size());
  return n;
}

int64_t n_linear_weights(const SourceModel& source) {
  const LayerTensors& l = source.layer(0);
  int64_t n = 0;
  for (const SourceTensor* t : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down})
    n += t->rows() * t->cols();
  return n * source.config().shape.n_layers;
}

}  // namespace

Result<QuantizeReport> quantize(const QuantizeOptions& options) {
  PF_ASSIGN(const SourceModel source, SourceModel::open(options.model));
  PF_ASSIGN(const DType dtype, resolve_dtype(options, source));
  PF_ASSIGN(const auto method,
            make_weight_method(options.method, options.how, dtype, source.config()));
  PF_TRY(check_shapes(source, *method));
  PF_ASSIGN(OutputFolder folder, OutputFolder::create(options.output, options.force));
  // Before the long work: what cannot be said in a Hugging Face folder is refused at once.
  PF_TRY(write_text_files(source, dtype, method->config(), folder));
  PF_ASSIGN(const CalibrationText text, read_text(options, source, method->needs_inputs()));
  for (const auto* windows : {&text.calibration, &text.held_out}) {
    for (const auto& window : *windows) {
      for (const int32_t token : window) {
        if (token < 0 || token >= source.config().shape.vocab_size)
          return bad_data("{}: the tokenizer gives token {}, the model has {}", options.model,
                          token, source.config().shape.vocab_size);
      }
    }
  }
  ThreadPool pool(options.threads > 0 ? options.threads : usable_cores());
  Conversion conversion(options, source, *method, dtype, folder.path(), pool);
  PF_TRY(conversion.run(text));
  PF_TRY(folder.commit());

  QuantizeReport r;
  r.output = options.output;
  r.method = options.method;
  r.dtype = dtype_name(dtype);
  r.source_bytes = source.stored_bytes();
  r.bytes = conversion.writer().data_bytes();
  r.tensors = conversion.writer().tensors();
  r.bits_per_weight = 8.0 * static_cast<double>(r.bytes) / static_cast<double>(source.n_weights());
  r.linear_bits = 8.0 * static_cast<double>(conversion.linear_bytes()) /
                  static_cast<double>(n_linear_weights(source));
  r.calibration_tokens = method->needs_inputs() ? n_tokens(text.calibration) : 0;
  r.kld = conversion.kld();
  return r;
}

}  // namespace pagefold
