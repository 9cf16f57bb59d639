// Time of one decode step at a given depth, without computing the prompt first: the cache holds
// zeros, which cost what any other values cost.
//
//   step_bench MODEL SPEC [SPEC ...] [repeat=20]
//   SPEC = key=value,key=value ...  len (tokens a sequence, 8192) batch (1) rows (1, of each
//          sequence) kv (auto) kvv (auto) group (0) threads (0) run (32) model (another than MODEL)
//
// The specs take turns (A B A B ...); prints the median step in milliseconds of each, tokens a
// second, bytes of the cache read a second, and the ratio to the first. Blocks lie as the engine
// hands them out while it reads a prompt in chunks of 512 tokens: `run` (32) blocks of each table
// in turn; run=1 is what a long answer leaves.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "api/loaded_model.h"
#include "base/log.h"
#include "report_status.h"

namespace pagefold {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kBlockSize = 16;

using Words = std::map<std::string, std::string>;

Result<Words> parse_spec(const std::string& text) {
  Words words{{"len", "8192"}, {"batch", "1"}, {"rows", "1"},    {"kv", "auto"}, {"kvv", "auto"},
              {"group", "0"},  {"run", "32"},  {"threads", "0"}, {"model", ""}};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const size_t eq = word.find('=');
    if (eq == std::string::npos || !words.contains(word.substr(0, eq)))
      return bad_input("unknown word '{}' in '{}'", word, text);
    words[word.substr(0, eq)] = word.substr(eq + 1);
    at = end + 1;
  }
  return words;
}

// A model whose cache already holds `len` tokens of each sequence.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> make(const std::string& model, const Words& words) {
    auto b = std::make_unique<Bench>();
    b->len_ = std::stoll(words.at("len"));
    b->batch_ = std::stoi(words.at("batch"));
    b->rows_ = std::stoi(words.at("rows"));
    b->run_ = std::max(1, std::stoi(words.at("run")));
    EngineOptions options;
    options.model = words.at("model").empty() ? model : words.at("model");
    options.kv_cache_dtype = words.at("kv");
    options.kv_cache_dtype_v = words.at("kvv");
    options.kv_cache_group = std::stoi(words.at("group"));
    options.threads = std::stoi(words.at("threads"));
    PF_ASSIGN(b->model_, load_model(options));
    PF_TRY(b->prepare());
    return b;
  }

  double step_ms() {
    const auto start = Clock::now();
    model_.network->forward({tokens_, positions_, seqs_, logit_rows_}, logits_.data());
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }
  int64_t tokens() const { return int64_t{batch_} * rows_; }
  double cache_bytes() const { return cache_bytes_; }

 private:
  Status prepare() {
    const ModelShape& s = model_.network->shape();
    const int n_tables = s.n_layers * s.n_kv_heads;
    const int64_t a_table = (len_ + rows_ + kBlockSize - 1) / kBlockSize;
    const KvShape kv =
        kv_shape(s, model_.kv, kBlockSize, static_cast<uint32_t>(a_table * n_tables * batch_));
    const int rows = batch_ * rows_;
    PF_TRY(model_.network->init(kv, {rows, batch_, batch_}));
    std::vector<BlockId> all(kv.n_blocks);
    std::iota(all.begin(), all.end(), 0u);
    PF_TRY(model_.network->blocks_taken(all));
    const int64_t all_tables = int64_t{n_tables} * batch_;
    blocks_.resize(static_cast<size_t>(all_tables));
    BlockId next = 0;
    for (int64_t first = 0; first < a_table; first += run_)
      for (auto& table : blocks_)
        for (int64_t j = first; j < std::min(first + run_, a_table); ++j) table.push_back(next++);
    for (const auto& table : blocks_) tables_.push_back({table.data(), len_, 0, nullptr});
    for (int b = 0; b < batch_; ++b) {
      seqs_.push_back({b * rows_, rows_, tables_.data() + int64_t{b} * n_tables, nullptr});
      logit_rows_.push_back(b * rows_ + rows_ - 1);
      for (int r = 0; r < rows_; ++r) {
        tokens_.push_back(100 + (b * 31 + r * 7) % 1000);
        positions_.push_back(len_ + r);
      }
    }
    logits_.resize(static_cast<size_t>(batch_ * s.vocab_size));
    cache_bytes_ = static_cast<double>(kv.block_bytes()) * static_cast<double>(kv.n_blocks);
    return ok_status();
  }

  LoadedModel model_;
  int64_t len_ = 0;
  int batch_ = 1, rows_ = 1;
  int64_t run_ = 32;
  std::vector<std::vector<BlockId>> blocks_;
  std::vector<TableView> tables_;
  std::vector<SeqRows> seqs_;
  std::vector<int32_t> tokens_, logit_rows_;
  std::vector<int64_t> positions_;
  std::vector<float> logits_;
  double cache_bytes_ = 0;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

Status run(int argc, char** argv) {
  if (argc < 3) return bad_input("usage: step_bench MODEL SPEC [SPEC ...] [repeat=20]");
  log::set_level(log::Level::error);
  int repeat = 20;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<Bench>> benches;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("repeat=")) {
      repeat = std::max(1, std::stoi(word.substr(7)));
      continue;
    }
    PF_ASSIGN(const Words words, parse_spec(word));
    PF_ASSIGN(std::unique_ptr<Bench> b, Bench::make(argv[1], words));
    names.push_back(word);
    benches.push_back(std::move(b));
  }
  std::vector<std::vector<double>> ms(benches.size());
  for (int i = -2; i < repeat; ++i) {
    for (size_t b = 0; b < benches.size(); ++b) {
      const double t = benches[b]->step_ms();
      if (i >= 0) ms[b].push_back(t);  // the first two warm up
    }
  }
  const double first = median(ms[0]) / static_cast<double>(benches[0]->tokens());
  for (size_t b = 0; b < benches.size(); ++b) {
    const double m = median(ms[b]);
    const double tokens = static_cast<double>(benches[b]->tokens());
    std::printf("%-44s %8.3f ms  %8.1f tokens/s  %6.1f GB/s of cache  x %.2f\n", names[b].c_str(),
                m, tokens / m * 1e3, benches[b]->cache_bytes() / m * 1e-6, first / (m / tokens));
  }
  return ok_status();
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  return pagefold::report_status([&] { return pagefold::run(argc, argv); });
}
