// Whole conversions of tiny models, read back by the model loader.
#include "quantize/quantize.h"

#include <cstring>

#include "quantize/tiny_source.h"

namespace pagefold::testing {
namespace {

std::vector<float> logits_of(const std::filesystem::path& path,
                             const std::vector<int32_t>& tokens) {
  auto files = open_model(path);
  EXPECT_TRUE(files.ok()) << files.status();
  if (!files.ok()) return {};
  const auto n = static_cast<int64_t>(tokens.size());
  return ModelRunner(*files, n).run(tokens, n);
}

class Unquantised : public ::testing::TestWithParam<GoldenModel> {};

// GGUF -> folder -> the logits that Transformers gives for the model.
TEST_P(Unquantised, AFloat32FolderIsTheModel) {
  const GoldenModel& g = GetParam();
  const Json rope = g.config.value("rope_scaling", Json::object());
  if (!rope.value("truncate", true) || rope.contains("mscale"))
    GTEST_SKIP() << "GGUF cannot say this";
  const TempFolder folder;
  write_gguf_with_text(folder.path() / "model.gguf", g.config);
  QuantizeOptions o;
  o.model = (folder.path() / "model.gguf").string();
  o.output = (folder.path() / "out").string();
  o.dtype = "float32";
  o.held_out = 64;
  o.text = tiny_text(100);
  o.max_shard_bytes = 60000;
  const auto report = quantize(o);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_LT(golden_error(g, logits_of(folder.path() / "out", g.tokens)), 2e-5);
  ASSERT_TRUE(report->kld.has_value());
  EXPECT_LT(report->kld->mean, 1e-9);
  EXPECT_DOUBLE_EQ(report->bits_per_weight, 32.0);
}

std::vector<GoldenModel> short_goldens() {
  std::vector<GoldenModel> out;
  for (const GoldenModel& g : golden_models()) {
    if (g.tokens.size() <= 128) out.push_back(g);
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Goldens, Unquantised, ::testing::ValuesIn(short_goldens()), golden_name);

class Method : public ::testing::Test {
 protected:
  void SetUp() override { write_gguf_with_text(source(), golden_model("llama").config, true); }
  std::filesystem::path source() const { return folder_.path() / "model.gguf"; }
  Result<QuantizeReport> make(const std::string& method, const std::string& name = "out") {
    options_.model = source().string();
    options_.output = (folder_.path() / name).string();
    options_.method = method;
    if (options_.text.empty()) options_.text = tiny_text(400);
    options_.held_out = 128;
    options_.threads = 2;
    return quantize(options_);
  }
  std::string slurp(const std::string& file) {
    return read_file(folder_.path() / file, 1 << 24).value_or("");
  }
  TempFolder folder_;
  QuantizeOptions options_;
};

TEST_F(Method, EachSaysHowFarItIsFromTheSource) {
  double kld8 = 0;
  for (const auto& [method, bits] :
       {std::pair{"fp8", 8.6}, std::pair{"bnb-int8", 8.6}, std::pair{"bnb-nf4", 7.0},
        std::pair{"awq", 5.0}, std::pair{"gptq", 6.0}}) {
    SCOPED_TRACE(method);
    options_.force = true;
    const auto r = make(method);
    ASSERT_TRUE(r.ok()) << r.status();
    ASSERT_TRUE(r->kld.has_value());
    EXPECT_GT(r->kld->mean, 1e-7);
    EXPECT_LT(r->kld->mean, 0.2);
    EXPECT_GT(r->kld->tokens, 100);
    EXPECT_LT(r->linear_bits, bits);
    EXPECT_EQ(r->calibration_tokens > 0,
              std::string(method) == "awq" || std::string(method) == "gptq");
    if (std::string(method) == "bnb-int8") kld8 = r->kld->mean;
    if (std::string(method) == "bnb-nf4") {
      EXPECT_GT(r->kld->mean, kld8);
    }
    const Json config = parse_json(slurp("out/config.json")).value();
    EXPECT_TRUE(config.contains("quantization_config"));
  }
}

TEST_F(Method, TheSameOptionsGiveTheSameBytesAtAnyThreadCount) {
  for (const char* method : {"awq", "gptq"}) {
    SCOPED_TRACE(method);
    ASSERT_TRUE(make(method, std::string(method) + "1").ok());
    options_.threads = 1;
    const std::string first = slurp(std::string(method) + "1/model.safetensors");
    ASSERT_TRUE(make(method, std::string(method) + "2").ok());
    EXPECT_FALSE(first.empty());
    EXPECT_TRUE(first == slurp(std::string(method) + "2/model.safetensors"));
  }
}

TEST_F(Method, AFolderIsASourceToo) {
  ASSERT_TRUE(make("none", "folder").ok());
  options_.dtype = "float16";
  options_.model.clear();
  const auto make_from = [&](const std::string& from, const std::string& method) {
    options_.model = (folder_.path() / from).string();
    options_.output = (folder_.path() / "second").string();
    options_.method = method;
    options_.force = true;
    return quantize(options_);
  };
  const auto r = make_from("folder", "fp8");
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(slurp("second/tokenizer.json"), slurp("folder/tokenizer.json"));
  const Json config = parse_json(slurp("second/config.json")).value();
  EXPECT_EQ(config["torch_dtype"], "float16");
  // A quantised one is refused by its method's name.
  const auto refused = make_from("second", "awq");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(message_of(refused.status()).find("compressed-tensors"), std::string::npos);
}

TEST_F(Method, TheModelWritesItsOwnText) {
  options_.model = source().string();
  options_.output = (folder_.path() / "own").string();
  options_.method = "gptq";
  options_.tokens = 256;
  options_.held_out = 64;
  options_.threads = 1;
  uint64_t written = 0;
  options_.progress = [&](std::string_view what, uint64_t done, uint64_t) {
    if (what == "writing text") written = done;
  };
  const auto r = quantize(options_);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_GT(r->calibration_tokens, 150);
  EXPECT_GT(r->kld->tokens, 30);
  EXPECT_GT(written, 0u);
}

TEST_F(Method, AnInterruptLeavesNothing) {
  int asked = 0;
  options_.stop = [&] { return ++asked == 2; };
  const auto r = make("bnb-nf4", "half");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(message_of(r.status()), "interrupted");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(Method, WrongUseLeavesNothing) {
  const auto refused = [&](std::string_view says, absl::StatusCode code) {
    const auto r = make(options_.method, "bad");
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.status().code(), code);
    EXPECT_NE(message_of(r.status()).find(says), std::string::npos) << r.status();
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / "bad"));
    for (const auto& e : std::filesystem::directory_iterator(folder_.path()))
      EXPECT_EQ(e.path().filename().string().find(".bad"), std::string::npos);
  };
  constexpr auto kWrong = absl::StatusCode::kInvalidArgument;
  options_.method = "int3";
  refused("int3", kWrong);
  options_.method = "gptq";
  options_.how.group = 48;
  refused("48", kWrong);
  options_.how.group = 0;
  options_.text = "too short";
  refused("tokens", kWrong);
  options_.text = "";
  options_.dtype = "int8";
  refused("int8", kWrong);
}

}  // namespace
}  // namespace pagefold::testing
