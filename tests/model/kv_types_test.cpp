// What caches of fewer bits do to the logits of whole models, and what loading makes of fp8 scales.
#include "model/golden_models.h"

namespace pagefold::testing {
namespace {

struct Bound {
  KvFormat kv;
  double kld;
};
const Bound kTypeBounds[] = {{DType::f16, 1e-5},      {DType::bf16, 5e-4},
                             {DType::int8, 1e-3},     {{DType::int8, DType::int8, 32}, 1e-3},
                             {DType::fp8_e4m3, 2e-2}, {DType::fp8_e5m2, 0.1},
                             {DType::int4, 5e-2},     {{DType::int8, DType::int4}, 5e-2}};

// A trained model's keys have dimensions that stand far out, in the slow rotary bands: Qwen2's
// biases make them. There a bias adds nearly the same to all logits, which changes little.
std::vector<TinyTensor> with_biased_keys(const Json& config) {
  std::vector<TinyTensor> tensors = tiny_tensors(config);
  const auto dim = static_cast<size_t>(TinyShape(config).head_dim);
  for (TinyTensor& t : tensors) {
    if (!t.name.ends_with("k_proj.bias")) continue;
    for (size_t i = dim / 2 - 1; i < t.values.size(); i += dim / 2)
      t.values[i] = i % dim < dim / 2 ? 12 : -9;
  }
  return tensors;
}

class GoldenFolder {
 public:
  GoldenFolder(const char* name, bool biased) : golden_(golden_model(name)) {
    write_hf(folder_.path(), golden_.config,
             biased ? with_biased_keys(golden_.config) : tiny_tensors(golden_.config),
             TensorType::F32);
    files_ = *open_model(folder_.path());
    want_ = run(DType::f32);
  }
  std::vector<float> run(const KvFormat& kv, int64_t chunk = 1 << 20, int threads = 1) const {
    // Where the steps are small, so are those that measure the keys.
    const auto n = static_cast<int64_t>(golden_.tokens.size()) + (chunk < 64 ? 0 : 64);
    return ModelRunner(files_, n, {.kv = kv}, "auto", threads).run(golden_.tokens, chunk);
  }
  double kld(const std::vector<float>& got) const { return mean_kld(want_, got, golden_.vocab()); }

 private:
  const GoldenModel& golden_;
  TempFolder folder_;
  ModelFiles files_;
  std::vector<float> want_;
};

TEST(KvTypes, LogitsOfWholeModels) {
  for (const char* name : {"llama", "qwen2", "llama_bias_mqa"}) {
    const GoldenFolder model(name, false);
    for (const Bound& b : kTypeBounds) {
      const auto got = model.run(b.kv);
      EXPECT_LT(model.kld(got), b.kld) << name << " " << b.kv.name();
      // How the prompt is cut and how many threads work decides nothing.
      ASSERT_EQ(got, model.run(b.kv, 7, 2)) << name << " " << b.kv.name();
    }
  }
}

TEST(KvTypes, RotationAndCentresBearBiasedKeys) {
  for (const char* name : {"qwen2", "llama_bias_mqa"}) {
    const GoldenFolder model(name, true);
    KvFormat plain = DType::int4;
    plain.hadamard_keys = false;
    plain.centred_keys = false;
    const double rotated = model.kld(model.run(DType::int4));
    EXPECT_LT(rotated, model.kld(model.run(plain))) << name;
    EXPECT_LT(model.kld(model.run(DType::int8)), rotated / 10) << name;
    EXPECT_LT(model.kld(model.run({DType::int4, DType::int4, 32})), 2 * rotated) << name;
    for (KvFormat f : {KvFormat(DType::fp8_e4m3), KvFormat(DType::int8), KvFormat(DType::int4)}) {
      const double centred = model.kld(model.run(f));
      f.centred_keys = false;
      const double stored = model.kld(model.run(f));
      EXPECT_LT(centred, stored / (f.hadamard_keys ? 1.3 : 2)) << name << " " << f.name();
    }
  }
}

// Scales of a checkpoint reach the cache: with them keys as large as fp8 cannot hold are held.
TEST(KvTypes, ScalesOfTheCheckpoint) {
  const GoldenModel& g = golden_model("llama");
  auto tensors = tiny_tensors(g.config);
  const int64_t layers = g.config["num_hidden_layers"].get<int64_t>();
  const auto find = [&](const std::string& name) -> TinyTensor& {
    for (TinyTensor& t : tensors)
      if (t.name == name) return t;
    throw std::runtime_error(name);
  };
  for (int64_t i = 0; i < layers; ++i) {
    const std::string p = fmt::format("model.layers.{}.self_attn.", i);
    // Powers of two, so that float32 computes the same with both.
    for (float& w : find(p + "k_proj.weight").values) w *= 1024;
    for (float& w : find(p + "q_proj.weight").values) w /= 1024;
    for (float& w : find(p + "v_proj.weight").values) w *= 4096;
    for (float& w : find(p + "o_proj.weight").values) w /= 4096;
  }
  const TempFolder bare, scaled;
  write_hf(bare.path(), g.config, tensors, TensorType::F32);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string p = fmt::format("model.layers.{}.self_attn.", i);
    tensors.push_back({p + "k_scale", {1}, {1024}, 1});
    tensors.push_back({p + "v_scale", {1}, {4096}, 1});
  }
  write_hf(scaled.path(), g.config, tensors, TensorType::F32);
  const auto plain = open_model(bare.path()), with = open_model(scaled.path());
  ASSERT_TRUE(plain.ok() && with.ok()) << with.status();
  EXPECT_EQ(with->config.kv.v_scale, std::vector<float>(static_cast<size_t>(layers), 4096.0f));
  const auto n = static_cast<int64_t>(g.tokens.size());
  const auto want = ModelRunner(*plain, n).run(g.tokens, n);
  KvFormat fp8 = *resolve_kv_format({"fp8", "auto", 0}, DType::f32, plain->config.kv);
  ModelRunner cut(*plain, n, {.kv = fp8});
  const auto poor = cut.run(g.tokens, n);
  EXPECT_GT(cut.model().kv_saturated(), 100u);
  fp8 = *resolve_kv_format({"fp8", "auto", 0}, DType::f32, with->config.kv);
  ModelRunner fits(*with, n, {.kv = fp8});
  const auto good = fits.run(g.tokens, n);
  EXPECT_EQ(fits.model().kv_saturated(), 0u);
  EXPECT_LT(mean_kld(want, good, g.vocab()), 1e-2);
  EXPECT_GT(mean_kld(want, poor, g.vocab()), 5 * mean_kld(want, good, g.vocab()));
}

}  // namespace
}  // namespace pagefold::testing
