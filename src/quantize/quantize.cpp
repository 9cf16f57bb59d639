#include "quantize/quantize.h"

#include "base/dtype.h"
#include "quantize/output_folder.h"
#include "quantize/source_model.h"
#include "quantize/tensor_output.h"
#include "quantize/text_files.h"

namespace pagefold {
namespace {

Result<DType> resolve_dtype(const std::string& word, const SourceModel& source) {
  if (word == "auto") return natural_dtype(source.files());
  auto dtype = parse_dtype(word);
  return dtype.ok() ? dtype : with_context(dtype.status(), "--dtype");
}

int64_t n_weights(const SourceModel& source) {
  int64_t n = 0;
  for (const TensorInfo& t : source.files().tensors()) n += t.elements();
  return n;
}

class Conversion {
 public:
  Conversion(const QuantizeOptions& options, const SourceModel& source, OutputFolder& folder,
             DType dtype)
      : options_(options),
        source_(source),
        folder_(folder),
        dtype_(dtype),
        writer_(folder.path(), options.max_shard_bytes, source.n_tensors()) {}

  Status run() {
    const int layers = source_.config().shape.n_layers;
    PF_TRY(copy(source_.embedding()));
    for (int i = 0; i < layers; ++i) {
      const LayerTensors& l = source_.layer(i);
      for (const SourceTensor* t :
           {&l.input_norm, &l.q, &l.k, &l.v, &l.o, &l.post_norm, &l.gate, &l.up, &l.down})
        PF_TRY(copy(*t));
      for (const auto* extra : {&l.q_bias, &l.k_bias, &l.v_bias, &l.o_bias, &l.q_norm, &l.k_norm}) {
        for (const SourceTensor& t : *extra) PF_TRY(copy(t));
      }
      if (options_.progress)
        options_.progress(static_cast<uint64_t>(i + 1), static_cast<uint64_t>(layers));
    }
    PF_TRY(copy(source_.final_norm()));
    if (source_.head()) PF_TRY(copy(*source_.head()));
    PF_TRY(writer_.finish());
    return write_text_files(source_, dtype_, Json(), folder_);
  }
  const SafetensorsWriter& writer() const { return writer_; }

 private:
  Status copy(const SourceTensor& t) {
    PF_TRY(copy_tensor(source_, t, dtype_, writer_));
    source_.release(t);
    return ok_status();
  }

  const QuantizeOptions& options_;
  const SourceModel& source_;
  OutputFolder& folder_;
  DType dtype_;
  SafetensorsWriter writer_;
};

}  // namespace

Result<QuantizeReport> quantize(const QuantizeOptions& options) {
  PF_ASSIGN(const SourceModel source, SourceModel::open(options.model));
  PF_ASSIGN(const DType dtype, resolve_dtype(options.dtype, source));
  PF_ASSIGN(OutputFolder folder, OutputFolder::create(options.output, options.force));
  Conversion conversion(options, source, folder, dtype);
  PF_TRY(conversion.run());
  PF_TRY(folder.commit());
  QuantizeReport r;
  r.output = options.output;
  r.method = options.method;
  r.dtype = dtype_name(dtype);
  r.source_bytes = source.stored_bytes();
  r.bytes = conversion.writer().data_bytes();
  r.tensors = conversion.writer().tensors();
  r.bits_per_weight = 8.0 * static_cast<double>(r.bytes) / static_cast<double>(n_weights(source));
  return r;
}

}  // namespace pagefold
