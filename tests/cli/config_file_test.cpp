#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "cli/args.h"

namespace pagefold {
namespace {

class ConfigFile : public ::testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_) << text; }
  Result<ParsedArgs> parse(std::vector<std::string> args) {
    args.insert(args.end(), {"--config", path_});
    return parse_args(std::move(args));
  }
  template <class Command>
  Command parsed(std::vector<std::string> args) {
    auto result = parse(std::move(args));
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok() || !std::holds_alternative<Command>(result->action)) return {};
    log_level_ = result->log_level;
    return std::get<Command>(result->action);
  }
  std::string fault(std::vector<std::string> args) {
    const auto result = parse(std::move(args));
    EXPECT_FALSE(result.ok());
    return result.ok() ? "" : message_of(result.status());
  }
  void TearDown() override { std::remove(path_.c_str()); }
  const std::string path_ = ::testing::TempDir() +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                            ".toml";
  std::string log_level_;
};

TEST_F(ConfigFile, KeysAreFlags) {
  write(R"(port = 9000
max_num_seqs = 7
kv-policy = "snapkv"      # a comment
memory-utilization = 0.25
enable-prefix-caching = false
kv-calibration = ["a", "b=c"]
allowed-origins = ["https://a.example", "http://b.example:81"]
ssl-certfile = "c.pem"
log-level = "warn"
)");
  const auto c = parsed<ServeCommand>({"serve", "m.gguf"});
  EXPECT_EQ(c.engine.model, "m.gguf");
  EXPECT_EQ(c.port, 9000);
  EXPECT_EQ(c.engine.max_num_seqs, 7);
  EXPECT_EQ(c.engine.kv.at("policy"), "snapkv");
  EXPECT_EQ(c.engine.memory_utilization, 0.25);
  EXPECT_FALSE(c.engine.enable_prefix_caching);
  EXPECT_EQ(c.engine.kv_calibrations, (std::vector<std::string>{"a", "b=c"}));
  EXPECT_EQ(c.allowed_origins,
            (std::vector<std::string>{"https://a.example", "http://b.example:81"}));
  EXPECT_EQ(c.ssl_certfile, "c.pem");
  EXPECT_EQ(log_level_, "warn");
}

TEST_F(ConfigFile, TheCommandLineWins) {
  write(
      "port = 9000\nmodel = \"file\"\nauto-tool-choice = true\n"
      "enable-prefix-caching = true\nkv-calibration = [\"a\"]\nthreads = 3\n");
  EXPECT_NE(fault({"serve"}).find("'auto-tool-choice' is no flag of 'serve'"), std::string::npos);
  write(
      "port = 9000\nmodel = \"file\"\n"
      "enable-prefix-caching = true\nkv-calibration = [\"a\"]\nthreads = 3\n");
  const auto c = parsed<ServeCommand>({"serve", "given", "--port=1", "--no-enable-prefix-caching",
                                       "--kv-calibration", "b", "-t", "5"});
  EXPECT_EQ(c.engine.model, "given");
  EXPECT_EQ(c.port, 1);
  EXPECT_FALSE(c.engine.enable_prefix_caching);
  EXPECT_EQ(c.engine.kv_calibrations, std::vector<std::string>{"b"});
  EXPECT_EQ(c.engine.threads, 5);
  EXPECT_EQ(parsed<ServeCommand>({"serve"}).engine.model, "file");
}

TEST_F(ConfigFile, TablesAreForOneSubcommand) {
  write(
      "model = \"m\"\n[serve]\nport = 1\nthreads = 2\n"
      "[generate]\nprompt = \"-x\"\nstop = [\"a\", \"b\"]\nchat = true\n");
  const auto g = parsed<GenerateCommand>({"generate"});
  EXPECT_EQ(g.prompt, "-x");
  EXPECT_TRUE(g.chat);
  EXPECT_EQ(g.sampling.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(g.engine.threads, 0);
  EXPECT_EQ(parsed<ServeCommand>({"serve"}).engine.threads, 2);
}

TEST_F(ConfigFile, FaultsNameTheLineAndTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"\n\nporrt = 1\n", ":3: 'porrt' is no flag of 'serve'"},
      {"\nport = 99999\n", ":2: --port: '99999': must be an integer from 0 to 65535"},
      {"port = [1, 2]\n", "--port"},
      {"port = true\n", ":1: 'port' takes a value"},
      {"json = 1\n", ":1: 'json' is a switch"},
      {"port = 2020-01-01\n", ":1: 'port' must be a text"},
      {"kv-calibration = [[1]]\n", ":1: 'kv-calibration' must be a text"},
      {"port = 1\nport = 2\n", ":2: not TOML"},
      {"port = \n", ":1: not TOML"},
      {"[reclaim]\nkeep = 1\nkeeep = 1\n", ":3: 'keeep' is no flag of 'reclaim'"},
      {"[nothing]\n", ":1: 'nothing' is no subcommand"},
      {"config = \"x\"\n", ":1: 'config' is no flag"},
      {"m = \"x\"\n", ":1: 'm' is no flag"},
      {"allowed-origins = [\"a.example\"]\n", ":1: --allowed-origins: 'a.example' is no origin"},
  };
  for (const auto& [text, want] : cases) {
    write(text);
    const std::string got = fault({"serve"});
    EXPECT_NE(got.find(want), std::string::npos) << text << "\n" << got;
    EXPECT_EQ(got.find("'--help'"), std::string::npos);
  }
  std::remove(path_.c_str());
  EXPECT_NE(fault({"serve"}).find("was not readable"), std::string::npos);
  write(std::string((1 << 20) + 1, '#'));
  EXPECT_NE(fault({"serve"}).find("larger than 1 MiB"), std::string::npos);
}

}  // namespace
}  // namespace pagefold
