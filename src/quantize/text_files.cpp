#include "quantize/text_files.h"

#include "api/gguf_text.h"
#include "base/file.h"
#include "quantize/hf_config.h"
#include "quantize/hf_tokenizer.h"

namespace pagefold {
namespace {

constexpr size_t kMaxFileBytes = 256 << 20;
constexpr const char* kCopied[] = {"generation_config.json",
                                   "tokenizer.json",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "tokenizer.model",
                                   "chat_template.jinja",
                                   "LICENSE"};

Status from_gguf(const SourceModel& source, DType dtype, const Json& quantization,
                 OutputFolder& out) {
  const GgufFile& gguf = *source.files().gguf;
  PF_ASSIGN(const GgufTokenizerSpec spec, gguf_tokenizer_spec(gguf));
  PF_ASSIGN(const std::string chat_template, gguf_chat_template(gguf));
  const std::vector<int32_t> ends = gguf_end_tokens(gguf, spec);
  PF_ASSIGN(Json config, hf_config(source.config(), dtype, spec, ends));
  if (!quantization.is_null()) config["quantization_config"] = quantization;
  PF_ASSIGN(const Json tokenizer, hf_tokenizer(spec));
  PF_ASSIGN(const Json tokenizer_config,
            hf_tokenizer_config(spec, chat_template, source.config().shape.context_length));
  PF_TRY(out.write("config.json", config.dump(2) + "\n"));
  PF_TRY(out.write("generation_config.json", dump_json(hf_generation_config(spec, ends)) + "\n"));
  PF_TRY(out.write("tokenizer.json", dump_json(tokenizer)));
  return out.write("tokenizer_config.json", dump_json(tokenizer_config) + "\n");
}

Status from_folder(const SourceModel& source, DType dtype, const Json& quantization,
                   OutputFolder& out) {
  const std::filesystem::path& folder = source.files().path;
  PF_ASSIGN(const std::string text, read_file(folder / "config.json", kMaxFileBytes));
  PF_ASSIGN(Json config, parse_json(text));
  config.erase("dtype");
  config["torch_dtype"] = std::string(dtype_name(dtype));
  if (!quantization.is_null()) config["quantization_config"] = quantization;
  PF_TRY(out.write("config.json", dump_json(config) + "\n"));
  for (const char* name : kCopied) {
    std::error_code ec;
    if (!std::filesystem::exists(folder / name, ec)) continue;
    PF_ASSIGN(const std::string content, read_file(folder / name, kMaxFileBytes));
    PF_TRY(out.write(name, content));
  }
  return ok_status();
}

}  // namespace

Status write_text_files(const SourceModel& source, DType dtype, const Json& quantization,
                        OutputFolder& out) {
  const Status done = source.files().gguf ? from_gguf(source, dtype, quantization, out)
                                          : from_folder(source, dtype, quantization, out);
  return done.ok() ? done : with_context(done, source.files().path.string());
}

}  // namespace pagefold
