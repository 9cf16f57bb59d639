// What loading quantised folders costs in memory at its peak, mapped pages of the file included:
// the packed weights and one layer.
#include <malloc.h>

#include <fstream>

#include "model/quant_folder.h"
#include "support/sanitizers.h"

namespace pagefold::testing {
namespace {

constexpr int64_t kLayers = 16;

// The highest resident memory since reset(), of this process; in bytes.
class PeakMemory {
 public:
  bool reset() {
    ::malloc_trim(0);
    std::ofstream out("/proc/self/clear_refs");
    out << 5 << std::flush;
    return out.good();
  }
  static uint64_t field(const std::string& name) {
    std::ifstream in("/proc/self/status");
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(name)) return std::stoull(line.substr(name.size())) << 10;
    }
    return 0;
  }
  static uint64_t now() { return field("VmRSS:"); }
  static uint64_t peak() { return field("VmHWM:"); }
};

Json config_of_layers() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 160},
          {"hidden_size", 256},
          {"intermediate_size", 768},
          {"num_hidden_layers", kLayers},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 4},
          {"max_position_embeddings", 512},
          {"tie_word_embeddings", true}};
}

void expect_one_copy(const std::filesystem::path& path, const std::string& quantization) {
  SCOPED_TRACE(quantization + " " + path.filename().string());
  auto files = open_model(path);
  ASSERT_TRUE(files.ok()) << files.status();
  auto quant = choose_quantization(quantization, std::move(files->quant));
  ASSERT_TRUE(quant.ok()) << quant.status();
  files->quant = *std::move(quant);
  if (!PeakMemory().reset()) GTEST_SKIP() << "no peak to be measured here";
  const uint64_t before = PeakMemory::now();
  NetworkOptions o;
  o.backend.threads = 2;
  const auto network = load_network(*files, o);
  ASSERT_TRUE(network.ok()) << network.status();
  const uint64_t peak = PeakMemory::peak() - before, packed = (*network)->weight_bytes();
  uint64_t in_file = 0;
  for (const TensorInfo& t : files->tensors()) in_file += t.data.size();
  // The last page of weights is a huge one; readers hold a strip of rows for each thread, and the
  // heap a little.
  const uint64_t layer = std::max(in_file, packed) / kLayers, page = 2 << 20;
  EXPECT_LT(peak, packed + page + layer + (1 << 20))
      << packed << " packed, " << layer << " a layer";
  EXPECT_GT(peak, packed / 2);
}

TEST(LoadingMemory, PackedSizeAndOneLayer) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep memory of their own";
  for (const char* form : {"awq_g32", "gptq4_asym_v2_act", "ct4_sym", "fp8_block", "bnb_nf4"}) {
    const QuantPair pair(form_named(form), config_of_layers());
    expect_one_copy(pair.quantised, "auto");
  }
}

TEST(LoadingMemory, QuantisingWhileLoading) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep memory of their own";
  const TempFolder folder;
  write_hf(folder.path(), config_of_layers(), tiny_tensors(config_of_layers()), TensorType::BF16);
  for (const char* word : {"none", "fp8", "bitsandbytes"}) expect_one_copy(folder.path(), word);
}

}  // namespace
}  // namespace pagefold::testing
