// Whole runs on a tiny model.
#include "eval/eval.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "api/tiny_folder.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "engine/tiny_engine.h"
#include "eval/forced.h"
#include "eval/run.h"
#include "eval/settings.h"
#include "pagefold/pagefold.h"

namespace pagefold::eval {
namespace {

class Eval : public ::testing::Test {
 protected:
  // Queries and keys are made larger than the others: attention that is nearly even shows nothing.
  void SetUp() override {
    log::set_level(log::Level::off);
    const Json config = testing::WatchedModel::config_of({});
    std::vector<testing::TinyTensor> tensors = testing::tiny_tensors(config);
    for (auto& t : tensors) {
      if (t.name.find("q_proj") == std::string::npos && t.name.find("k_proj") == std::string::npos)
        continue;
      for (float& v : t.values) v *= 3;
    }
    testing::write_hf(folder_.path() / "m", config, tensors, TensorType::F32);
    std::ofstream(folder_.path() / "m" / "tokenizer.json") << testing::tiny_tokenizer_json(160);
    std::string text;
    for (int i = 0; i < 2000; ++i)
      text +=
          static_cast<char>('A' + static_cast<int>(uniform01(5, static_cast<uint64_t>(i)) * 40));
    std::ofstream(folder_.path() / "text") << text;
    std::ofstream(folder_.path() / "qa") << R"({"question": "1+1?", "answer": "#### 2"})"
                                         << "\n"
                                         << R"({"question": "1+2?", "answer": "#### 3"})"
                                         << "\n";
  }
  EvalOptions options(const std::string& task) const {
    EvalOptions o;
    o.task = task;
    o.engine.model = (folder_.path() / "m").string();
    o.engine.dtype = "float32";
    o.engine.threads = 1;
    o.engine.kv_cache_memory_bytes = 64 << 20;
    o.engine.kv = {{"interval", "16"}, {"recent", "4"}};
    o.data = (folder_.path() / "text").string();
    o.samples = 2;
    o.prompt = 32;
    o.tokens = 64;
    return o;
  }
  static Json rows(const EvalOptions& o) {
    const auto report = run_eval(o);
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return Json::array();
    EXPECT_EQ(report->html.find("<script"), std::string::npos);
    EXPECT_NE(report->html.find("<svg"), std::string::npos);
    return (*parse_json(report->json))["rows"];
  }
  static Json row_of(const Json& rows, const std::string& policy) {
    for (const Json& r : rows) {
      if (r["policy"] == policy) return r;
    }
    ADD_FAILURE() << policy;
    return {};
  }
  testing::TempFolder folder_;
};

TEST_F(Eval, DivergenceIsZeroWhereNothingIsEvicted) {
  EvalOptions o = options("kld");
  o.engine.kv = {};
  o.policies = {"oracle",       "random", "streaming", "h2o",        "scissorhands",
                "tova",         "snapkv", "snapkv-d",  "kvcompress", "rkv",
                "triattention", "quest",  "pyramidkv", "adakv"};
  o.budgets = {"100%"};
  o.samples = 1;
  o.tokens = 40;
  const Json all = rows(o);
  ASSERT_EQ(all.size(), o.policies.size() + 1);
  for (const Json& row : all) {
    SCOPED_TRACE(row["policy"].get<std::string>());
    EXPECT_EQ(row["kld_mean"], 0.0);
    EXPECT_EQ(row["kld_max"], 0.0);
    EXPECT_EQ(row["top1"], 1.0);
    EXPECT_EQ(row["perplexity"], all[0]["perplexity"]);
    EXPECT_EQ(row["kv_bytes"], all[0]["kv_bytes"]);
    // Nothing was compacted, so nothing was shown to be lossless.
    EXPECT_TRUE(row["lossless"].is_null());
  }
}

TEST_F(Eval, OracleLosesLeastAttention) {
  EvalOptions o = options("mass");
  o.policies = {"oracle", "random", "streaming", "snapkv-d"};
  o.budgets = {"25%"};
  const Json all = rows(o);
  const auto lost = [&](const char* policy) {
    return row_of(all, policy)["lost_mass"].get<double>();
  };
  EXPECT_EQ(lost("full"), 0);
  EXPECT_GT(lost("oracle"), 0);
  EXPECT_LT(lost("oracle"), lost("snapkv-d"));
  EXPECT_LT(lost("oracle"), 0.9 * lost("random"));
  EXPECT_LT(lost("oracle"), 0.9 * lost("streaming"));
  EXPECT_LT(lost("random"), 1);
  EXPECT_EQ(row_of(all, "full")["output_error"], 0.0);
  EXPECT_LT(row_of(all, "oracle")["output_error"], row_of(all, "random")["output_error"]);
  // What went to which distance adds up to what was lost.
  double sum = 0;
  const Json random = row_of(all, "random");
  for (const Json& b : random["lost_by_distance"]) sum += b["lost_mass"].get<double>();
  EXPECT_NEAR(sum, lost("random"), 1e-6);
}

TEST_F(Eval, FiguresRepeatAndTypesDiffer) {
  EvalOptions o = options("kld");
  o.policies = {"h2o", "random"};
  o.budgets = {"25%"};
  o.kv_types = {"float32", "int8"};
  const auto first = run_eval(o);
  o.engine.threads = 2;
  const auto second = run_eval(o);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->json, second->json);
  EXPECT_EQ(first->html, second->html);
  const Json all = (*parse_json(first->json))["rows"];
  EXPECT_EQ(all[0]["kld_mean"], 0.0);
  EXPECT_EQ(all[3]["policy"], "full");
  EXPECT_GT(all[3]["kld_mean"], 0.0);  // int8 loses a little
  EXPECT_LT(all[3]["kv_bytes"].get<double>(), 0.4 * all[0]["kv_bytes"].get<double>());
  EXPECT_GT(all[1]["kld_mean"], all[3]["kld_mean"]);
  EXPECT_LT(all[1]["kv_bytes"].get<double>(), 0.75 * all[0]["kv_bytes"].get<double>());
  EXPECT_GT(all[1]["compactions"], 0.0);
  EXPECT_EQ(all[1]["lossless"], false);
  EXPECT_EQ(all[1]["paired"][0]["against"], "full");
}

TEST_F(Eval, GoesOnAndRefusesOtherSettings) {
  EvalOptions o = options("perplexity");
  o.policies = {"random"};
  o.budgets = {"25%"};
  const auto whole = run_eval(o);
  ASSERT_TRUE(whole.ok()) << whole.status();
  o.output = (folder_.path() / "out").string();
  ASSERT_TRUE(run_eval(o).ok());
  const std::string path = o.output + ".jsonl";
  const auto read = [&] { return *read_file(path, 1 << 20); };
  const std::string full = read();
  // Stopped in the middle of the third line.
  size_t cut = 0;
  for (int i = 0; i < 2; ++i) cut = full.find('\n', cut) + 1;
  std::ofstream(path, std::ios::binary) << full.substr(0, cut + 20);
  int64_t steps = 0;
  o.progress = [&](int64_t, int64_t) { ++steps; };
  const auto resumed = run_eval(o);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->json, whole->json);
  EXPECT_EQ(steps, 3);  // of four lines, one was there
  EXPECT_EQ(*read_file(o.output + ".json", 1 << 20), whole->json + "\n");
  EXPECT_EQ(*read_file(o.output + ".html", 1 << 20), resumed->html);
  o.policies.push_back("streaming");  // a larger grid of the same settings goes on too
  EXPECT_TRUE(run_eval(o).ok());
  EXPECT_EQ(steps, 5);
  o.tokens += 1;
  const auto other = run_eval(o);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().message().find("tokens"), std::string::npos) << other.status();
  o.tokens -= 1;
  for (const char* values : {"null", "{}", "[1]", R"({"nll": "x", "kv_bytes": "y"})"}) {
    std::ofstream(path, std::ios::binary)
        << full.substr(0, full.find('\n') + 1) << R"({"cell":"full||float32","sample":0,"values":)"
        << values << "}\n";
    const auto damaged = run_eval(o);  // an error, or figures without it
    if (damaged.ok()) continue;
    EXPECT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss);
  }
}

// Before a model is loaded: none is there.
TEST_F(Eval, RefusesWhatNoModelWouldTake) {
  const auto refused = [&](EvalOptions o) {
    o.engine.model = (folder_.path() / "none").string();
    o.output = (folder_.path() / "refused").string();
    const auto r = run_eval(o);
    EXPECT_FALSE(r.ok());
    EXPECT_FALSE(std::filesystem::exists(o.output + ".jsonl"));
    return std::string(r.status().message());
  };
  EvalOptions o = options("kld");
  o.budgets = {"24"};
  o.policies = {"h2o", "h3o"};
  EXPECT_NE(refused(o).find("h3o: kv.policy: unknown policy"), std::string::npos);
  o.policies = {"h2o:bugdet=1", "random"};
  EXPECT_NE(refused(o).find("unknown key \"bugdet\""), std::string::npos);
  o.policies = {"random"};
  for (const char* budget : {"0", "-3", "abc", "101%", "0%", "nan"}) {
    o.budgets = {"24", budget};
    EXPECT_NE(refused(o).find("kv.budget"), std::string::npos) << budget;
  }
  o = options("qa");
  const std::string path = o.data = (folder_.path() / "lines").string();
  o.shots = 0;
  const std::string good = R"({"question": "1+1?", "answer": "#### 2"})";
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {good + "\n\n{\n", "line 3: expected"},
           {"\n" + good + "\n" + R"({"question": "?", "answer": "none"})",
            "line 3: the answer has"},
           {R"({"question": 1, "answer": "#### 2"})", "line 1: expected"},
           {"", "0 lines leave no question"}}) {
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_NE(refused(o).find(part), std::string::npos) << text;
    EXPECT_NE(refused(o).find(path), std::string::npos) << text;
  }
  std::ofstream(path, std::ios::binary) << good << "\n";
  o.repeats = 2;
  o.temperature = 0;
  EXPECT_NE(refused(o).find("every answer is the same"), std::string::npos);
  o = options("state_query");
  o.data = path;
  EXPECT_NE(refused(o).find(path), std::string::npos);
}

// Of the headers alone: the model has no tokenizer.
TEST_F(Eval, RefusesWhatTheContextHasNoRoomFor) {
  std::filesystem::remove(folder_.path() / "m" / "tokenizer.json");
  const int64_t context = open_model(folder_.path() / "m")->config.shape.context_length;
  const auto refused = [&](EvalOptions o) {
    o.output = (folder_.path() / "refused").string();
    const auto r = run_eval(o);
    EXPECT_FALSE(r.ok());
    EXPECT_FALSE(std::filesystem::exists(o.output + ".jsonl"));
    return message_of(r.status());
  };
  EvalOptions o = options("needle");
  o.data.clear();
  o.contexts = {128, context};
  const std::string part = fmt::format("--contexts: {} tokens and an answer of up to", context);
  EXPECT_NE(refused(o).find(part), std::string::npos) << refused(o);
  o.engine.max_model_len = 140;
  EXPECT_NE(refused(o).find("fit the context of 140 tokens; give at most 116"), std::string::npos);
  o = options("perplexity");
  o.tokens = context;
  EXPECT_NE(refused(o).find("--tokens"), std::string::npos) << refused(o);
}

// What triattention reads is a setting: another file beside the model, or under a name.
TEST_F(Eval, CalibrationsAreSettings) {
  EvalOptions o = options("perplexity");
  o.policies = {"random"};
  o.budgets = {"25%"};
  o.output = (folder_.path() / "out").string();
  ASSERT_TRUE(run_eval(o).ok());
  const auto beside = folder_.path() / "m" / "triattention.calibration";
  std::ofstream(beside) << "one";
  const Json one = *look_into_model(o);
  const auto other = run_eval(o);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().message().find("kv_calibration was {} there and is {\"auto\":"),
            absl::string_view::npos)
      << other.status();
  std::ofstream(beside) << "two";
  const Json two = *look_into_model(o);
  EXPECT_NE(one["auto"], two["auto"]);
  o.engine.kv_calibrations = {"mine=" + beside.string()};
  EXPECT_EQ((*look_into_model(o))["mine"], two["auto"]);
  o.engine.kv_calibrations = {"mine=" + (folder_.path() / "none").string()};
  EXPECT_NE(look_into_model(o).status().message().find("--kv-calibration mine="),
            absl::string_view::npos);
}

TEST_F(Eval, AsksForAnswers) {
  EvalOptions o = options("qa");
  o.data = (folder_.path() / "qa").string();
  o.shots = 0;
  o.repeats = 2;
  o.max_tokens = 40;
  o.policies = {"streaming"};
  o.budgets = {"24", "4000"};
  const Json all = rows(o);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["samples"], 2);
  EXPECT_EQ(all[0]["answers"], 4);
  EXPECT_GT(all[1]["compactions"], 0.0);
  EXPECT_LT(all[1]["kv_bytes"], all[0]["kv_bytes"]);
  // The same answers as the full cache gives, but never compacted: that proves nothing.
  EXPECT_EQ(all[2]["never_compacted"], 2);
  EXPECT_TRUE(all[2]["same_answers"].is_null());
  EXPECT_TRUE(all[1]["same_answers"].is_boolean());
}

TEST_F(Eval, RefusesWhatItCannotDo) {
  const auto message = [](const EvalOptions& o) {
    const auto r = run_eval(o);
    return r.ok() ? std::string("ok") : message_of(r.status());
  };
  EXPECT_NE(message(options("guess")).find("'guess' is no mode"), std::string::npos);
  EvalOptions o = options("needle");
  o.policies = {"oracle"};
  EXPECT_NE(message(o).find("oracle"), std::string::npos);
  o = options("kld");
  o.policies = {"h2"};
  EXPECT_NE(message(o).find("h2"), std::string::npos);
  o = options("kld");
  o.samples = 1000;
  EXPECT_NE(message(o).find("--samples"), std::string::npos);
  o = options("qa");
  o.data.clear();
  EXPECT_NE(message(o).find("--data"), std::string::npos);
  // A budget below what a policy protects is a cell less, not the end.
  o = options("kld");
  o.engine.kv = {{"recent", "40"}};
  o.policies = {"random"};
  o.budgets = {"16", "48"};
  const auto report = run_eval(o);
  ASSERT_TRUE(report.ok()) << report.status();
  const Json json = *parse_json(report->json);
  EXPECT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["left_out"].size(), 1u);
}

// A text read by force leaves the cache that generating it does, and the same next tokens.
TEST_F(Eval, ReadsAsTheEngineGenerates) {
  EvalOptions o = options("kld");
  EngineOptions engine_options = engine_of(o, "float32");
  const auto engine = Engine::open(engine_options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::string prompt = "ABCDEFGHIJKLMNOPQRSTUVWX";
  for (const KvOptions& kv : std::vector<KvOptions>{
           {{"policy", "full"}},
           {{"policy", "h2o"}, {"budget", "32"}},
           {{"policy", "tova"}, {"budget", "32"}},
           {{"policy", "snapkv-d"}, {"budget", "32"}, {"interval", "8"}, {"recent", "8"}},
           {{"policy", "scissorhands"}, {"budget", "32"}},
           {{"policy", "streaming"}, {"budget", "25%"}, {"interval", "16"}, {"reindex", "on"}},
           {{"policy", "quest"}, {"budget", "32"}}}) {
    SCOPED_TRACE(testing::words_of(kv));
    SamplingOptions sampling;
    sampling.temperature = 0;
    sampling.max_tokens = 90;
    sampling.ignore_eos = true;
    auto stream = (*engine)->generate(prompt, sampling, kv);
    ASSERT_TRUE(stream.ok()) << stream.status();
    while ((*stream)->next()) {
    }
    std::vector<int32_t> tokens = (*engine)->tokenize(prompt);
    const auto n_prompt = static_cast<int64_t>(tokens.size());
    tokens.insert(tokens.end(), (*stream)->token_ids().begin(), (*stream)->token_ids().end());
    auto model = ForcedModel::open(engine_options, static_cast<int64_t>(tokens.size()));
    ASSERT_TRUE(model.ok()) << model.status();
    const auto plan = (*model)->plan(kv, n_prompt);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const int64_t vocab = (*model)->shape().vocab_size;
    int64_t seen = 0;
    ForcedHooks hooks;
    hooks.logits = [&](int64_t first, int64_t rows, const float* x) {
      for (int64_t i = 0; i < rows; ++i, x += vocab, ++seen)
        EXPECT_EQ(std::max_element(x, x + vocab) - x, tokens[static_cast<size_t>(first + i + 1)]);
    };
    const auto usage = (*model)->run(*plan, tokens, n_prompt, hooks);
    ASSERT_TRUE(usage.ok()) << usage.status();
    EXPECT_EQ(seen, 90);
    const Usage want = (*stream)->usage();
    EXPECT_EQ(usage->bytes_end, want.kv_bytes);
    EXPECT_EQ(usage->bytes_peak, want.kv_peak_bytes);
    EXPECT_EQ(usage->compactions, want.kv.compactions);
    EXPECT_EQ(usage->kept_tokens, want.kv.kept_tokens);
  }
}

}  // namespace
}  // namespace pagefold::eval
