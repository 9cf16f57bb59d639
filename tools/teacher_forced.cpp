// Teacher-forced logits of a model over given tokens, compared with a reference: mean KLD, 99 %
// KLD, top-1 agreement; and the perplexity of the tokens.
//   teacher_forced MODEL TOKENS.i32 REFERENCE.f32 [key=value ...]
// TOKENS: ids of the model's tokenizer, int32 in native order; docs/precision.md makes such a file.
// keys: dtype kv kvv kvgroup hadamard and centre (auto, 0, 1) activations chunk threads isa tokens
// (the first ones alone) out (a file for the logits). REFERENCE: [tokens][vocab] float32 from
// tools/reference_logits.py or from out=; or "-": no comparison. With out= a second run compares
// one KV type with another:
//   teacher_forced M T - kv=bfloat16 out=ref.f32; teacher_forced M T ref.f32 kv=int8
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "base/file.h"
#include "base/threads.h"
#include "kv/table.h"
#include "model/load.h"

namespace pagefold {
namespace {

// Tables that simply count up: one sequence, nothing evicted.
struct Tables {
  std::vector<std::vector<BlockId>> ids;
  std::vector<TableView> views;
  Tables(const ModelShape& s, int64_t tokens, int block_size) {
    const auto blocks = static_cast<size_t>((tokens + block_size - 1) / block_size);
    BlockId next = 0;
    for (int i = 0; i < s.n_layers * s.n_kv_heads; ++i) {
      ids.emplace_back(blocks);
      for (BlockId& b : ids.back()) b = next++;
    }
    for (const auto& list : ids) views.push_back({list.data(), 0, 0});
  }
};

void log_softmax(const float* x, int64_t n, std::vector<double>& out) {
  out.assign(x, x + n);
  const double max = *std::max_element(out.begin(), out.end());
  double sum = 0;
  for (const double v : out) sum += std::exp(v - max);
  for (double& v : out) v -= max + std::log(sum);
}

struct Comparison {
  std::vector<double> kld;
  int64_t agree = 0, predicted = 0;
  double log_loss = 0;
  // next: the token that follows, or negative.
  void add(const float* reference, const float* ours, int64_t n, int32_t next) {
    std::vector<double> p, q;
    log_softmax(ours, n, q);
    if (next >= 0) {
      log_loss -= q[static_cast<size_t>(next)];
      ++predicted;
    }
    if (reference == nullptr) return;
    log_softmax(reference, n, p);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
    kld.push_back(sum);
    agree += std::max_element(reference, reference + n) - reference ==
             std::max_element(ours, ours + n) - ours;
  }
  void print() {
    if (predicted > 0)
      std::printf("perplexity %.4f\n", std::exp(log_loss / static_cast<double>(predicted)));
    if (kld.empty()) return;
    double mean = 0;
    for (const double k : kld) mean += k / static_cast<double>(kld.size());
    std::sort(kld.begin(), kld.end());
    std::printf("rows %zu mean_kld %.3e p99_kld %.3e top1 %.4f\n", kld.size(), mean,
                kld[kld.size() * 99 / 100],
                static_cast<double>(agree) / static_cast<double>(kld.size()));
  }
};

using Words = std::map<std::string, std::string>;

Result<Words> parse_words(int argc, char** argv) {
  Words o{{"dtype", "auto"}, {"kv", "auto"},       {"kvv", "auto"},    {"kvgroup", "auto"},
          {"chunk", "512"},  {"hadamard", "auto"}, {"centre", "auto"}, {"activations", "auto"},
          {"threads", "0"},  {"isa", "auto"},      {"tokens", "0"},    {"out", ""}};
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t eq = word.find('=');
    if (eq == std::string::npos || !o.contains(word.substr(0, eq)))
      return bad_input("unknown option '{}'", word);
    o[word.substr(0, eq)] = word.substr(eq + 1);
  }
  return o;
}

Result<KvFormat> kv_format(Words& o, DType dtype, const KvRecipe& recipe) {
  const std::string& word = o["kvgroup"];
  if (word != "auto" && word != "0" && word != "32")
    return bad_input("kvgroup={}: must be auto, 0 or 32", word);
  const int group = word == "auto" ? kAutoKvGroup : std::stoi(word);
  PF_ASSIGN(KvFormat f, resolve_kv_format({o["kv"], o["kvv"], group}, dtype, recipe));
  if (o["hadamard"] != "auto") f.hadamard_keys = o["hadamard"] == "1";
  if (o["centre"] != "auto") f.centred_keys = o["centre"] == "1";
  return f;
}

// Writes rows of logits; does nothing without a path.
class LogitsFile {
 public:
  Status open(const std::string& path) {
    if (path.empty()) return ok_status();
    file_ = std::fopen(path.c_str(), "wb");
    return file_ != nullptr ? ok_status() : io_error("{}: cannot be written", path);
  }
  ~LogitsFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  bool wanted() const { return file_ != nullptr; }
  void add(const float* logits, size_t n) {
    if (file_ != nullptr) std::fwrite(logits, sizeof(float), n, file_);
  }

 private:
  std::FILE* file_ = nullptr;
};

Result<std::vector<int32_t>> read_tokens(const char* path, size_t most) {
  PF_ASSIGN(const std::string bytes, read_file(path, 1 << 28));
  std::vector<int32_t> tokens(bytes.size() / 4);
  std::memcpy(tokens.data(), bytes.data(), tokens.size() * 4);
  if (most > 0 && most < tokens.size()) tokens.resize(most);
  return tokens;
}

Result<MappedFile> open_reference(const char* path, size_t tokens, int64_t vocab) {
  PF_ASSIGN(MappedFile file, MappedFile::open(path));
  if (file.bytes().size() < tokens * static_cast<size_t>(vocab) * sizeof(float))
    return bad_data("{}: fewer rows than {} tokens of {} logits", path, tokens, vocab);
  return file;
}

NetworkOptions network_options(Words& o, DType dtype) {
  const int threads = std::stoi(o["threads"]);
  return {.backend = {.isa = o["isa"],
                      .threads = threads > 0 ? threads : usable_cores(),
                      .dtype = dtype,
                      .activations =
                          o["activations"] == "16" ? Activations::bits16 : Activations::automatic}};
}

Status run(int argc, char** argv) {
  if (argc < 4)
    return bad_input("usage: teacher_forced MODEL TOKENS.i32 REFERENCE.f32|- [key=value ...]");
  PF_ASSIGN(Words o, parse_words(argc, argv));
  PF_ASSIGN(const ModelFiles files, open_model(argv[1]));
  PF_ASSIGN(const DTypeChoice choice, choose_dtype(o["dtype"], stored_types(files)));
  const DType dtype = choice.dtype;
  PF_ASSIGN(const KvFormat format, kv_format(o, dtype, files.config.kv));
  const auto load_start = std::chrono::steady_clock::now();
  PF_ASSIGN(const std::unique_ptr<TransformerModel> model,
            load_network(files, network_options(o, dtype)));
  const double load_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - load_start).count();
  PF_ASSIGN(const std::vector<int32_t> tokens, read_tokens(argv[2], std::stoul(o["tokens"])));
  MappedFile reference;
  const bool compare = std::string_view(argv[3]) != "-";
  if (compare) {
    PF_ASSIGN(reference, open_reference(argv[3], tokens.size(), model->shape().vocab_size));
  }

  LogitsFile out;
  PF_TRY(out.open(o["out"]));

  const ModelShape& s = model->shape();
  const auto n = static_cast<int64_t>(tokens.size());
  const int chunk = std::stoi(o["chunk"]);
  Tables tables(s, n, 16);
  const KvShape kv =
      kv_shape(s, format, 16, static_cast<uint32_t>(tables.ids.size() * tables.ids[0].size()));
  PF_TRY(model->init(kv, {chunk, 1, chunk}));
  std::vector<float> logits(static_cast<size_t>(chunk * s.vocab_size));
  Comparison result;
  double seconds = 0;
  for (int64_t at = 0; at < n; at += chunk) {
    const int rows = static_cast<int>(std::min<int64_t>(chunk, n - at));
    std::vector<int64_t> positions;
    std::vector<int32_t> wanted;
    for (int r = 0; r < rows; ++r) {
      positions.push_back(at + r);
      if (compare || out.wanted()) wanted.push_back(r);
    }
    const SeqRows seq{0, rows, tables.views.data()};
    const auto start = std::chrono::steady_clock::now();
    model->forward({std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)),
                    positions,
                    {&seq, 1},
                    wanted},
                   logits.data());
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (TableView& v : tables.views) v.len += rows;
    out.add(logits.data(), wanted.size() * static_cast<size_t>(s.vocab_size));
    const auto* ref = reinterpret_cast<const float*>(reference.bytes().data());
    for (int r = 0; (compare || out.wanted()) && r < rows; ++r) {
      const int64_t row = at + r;
      result.add(compare ? ref + row * s.vocab_size : nullptr, logits.data() + r * s.vocab_size,
                 s.vocab_size, row + 1 < n ? tokens[static_cast<size_t>(row + 1)] : -1);
    }
  }
  std::printf("load %.2f s, %.1f tokens/s%s\n", load_s, static_cast<double>(n) / seconds,
              compare ? " (all logits)" : "");
  std::printf("weights %llu bytes\n", static_cast<unsigned long long>(model->weight_bytes()));
  std::printf("kv %s, %llu bytes a token, %llu elements cut off\n", format.name().c_str(),
              static_cast<unsigned long long>(kv.block_bytes() / 16 *
                                              static_cast<uint64_t>(s.n_layers * s.n_kv_heads)),
              static_cast<unsigned long long>(model->kv_saturated()));
  result.print();
  return ok_status();
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  const pagefold::Status s = pagefold::run(argc, argv);
  if (s.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", pagefold::message_of(s).c_str());
  return 1;
}
