// Teacher-forced logits of a model over given tokens, compared with a reference: mean KLD, 99 %
// KLD, top-1 agreement. teacher_forced MODEL TOKENS.i32 REFERENCE.f32 [key=value ...]   keys: dtype
// kv activations chunk threads isa REFERENCE: [tokens][vocab] float32 from
// tools/reference_logits.py, or "-" to only print the speed.
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
  int64_t agree = 0;
  void add(const float* reference, const float* ours, int64_t n) {
    std::vector<double> p, q;
    log_softmax(reference, n, p);
    log_softmax(ours, n, q);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
    kld.push_back(sum);
    agree += std::max_element(reference, reference + n) - reference ==
             std::max_element(ours, ours + n) - ours;
  }
  void print() {
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
  Words o{{"dtype", "auto"}, {"kv", "auto"},   {"activations", "auto"},
          {"chunk", "512"},  {"threads", "0"}, {"isa", "auto"}};
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t eq = word.find('=');
    if (eq == std::string::npos || !o.contains(word.substr(0, eq)))
      return bad_input("unknown option '{}'", word);
    o[word.substr(0, eq)] = word.substr(eq + 1);
  }
  return o;
}

Result<DType> dtype_or(const std::string& word, DType automatic) {
  return word == "auto" ? Result<DType>(automatic) : parse_dtype(word);
}

Status run(int argc, char** argv) {
  if (argc < 4)
    return bad_input("usage: teacher_forced MODEL TOKENS.i32 REFERENCE.f32|- [key=value ...]");
  PF_ASSIGN(Words o, parse_words(argc, argv));
  PF_ASSIGN(const ModelFiles files, open_model(argv[1]));
  PF_ASSIGN(const DType dtype, dtype_or(o["dtype"], natural_dtype(files)));
  PF_ASSIGN(const DType kv_dtype, dtype_or(o["kv"], dtype));
  const int threads = std::stoi(o["threads"]);
  NetworkOptions network{.backend = {.isa = o["isa"],
                                     .threads = threads > 0 ? threads : usable_cores(),
                                     .dtype = dtype,
                                     .activations = o["activations"] == "16"
                                                        ? Activations::bits16
                                                        : Activations::automatic}};
  const auto load_start = std::chrono::steady_clock::now();
  PF_ASSIGN(const std::unique_ptr<TransformerModel> model, load_network(files, network));
  const double load_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - load_start).count();
  PF_ASSIGN(const std::string bytes, read_file(argv[2], 1 << 28));
  std::vector<int32_t> tokens(bytes.size() / 4);
  std::memcpy(tokens.data(), bytes.data(), tokens.size() * 4);
  MappedFile reference;
  const bool compare = std::string_view(argv[3]) != "-";
  if (compare) {
    PF_ASSIGN(reference, MappedFile::open(argv[3]));
  }

  const ModelShape& s = model->shape();
  const auto n = static_cast<int64_t>(tokens.size());
  const int chunk = std::stoi(o["chunk"]);
  Tables tables(s, n, 16);
  const KvShape kv{s.n_layers,
                   s.n_kv_heads,
                   s.head_dim,
                   16,
                   kv_dtype,
                   kv_dtype,
                   static_cast<uint32_t>(tables.ids.size() * tables.ids[0].size())};
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
      if (compare) wanted.push_back(r);
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
    for (int r = 0; compare && r < rows; ++r) {
      const auto* ref =
          reinterpret_cast<const float*>(reference.bytes().data()) + (at + r) * s.vocab_size;
      result.add(ref, logits.data() + r * s.vocab_size, s.vocab_size);
    }
  }
  std::printf("load %.2f s, %.1f tokens/s%s\n", load_s, static_cast<double>(n) / seconds,
              compare ? " (all logits)" : "");
  if (compare) result.print();
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
