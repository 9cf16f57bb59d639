#include "eval/grid.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "eval/eval.h"
#include "model/model_runner.h"

namespace pagefold::eval {
namespace {

using Words = std::vector<std::string>;

TEST(Grid, SplitsListsOfPolicies) {
  EXPECT_EQ(split_words("a,b"), (Words{"a", "b"}));
  EXPECT_EQ(split_words("h2o:alloc=adaptive,alpha=0.2,streaming:sinks=0,random"),
            (Words{"h2o:alloc=adaptive,alpha=0.2", "streaming:sinks=0", "random"}));
  EXPECT_EQ(split_words(",,25%,"), (Words{"25%"}));
  EXPECT_TRUE(split_words("").empty());
}

TEST(Grid, HasTheFullCacheOnceATypeAndTypesOutside) {
  const auto cells = make_grid({"full", "h2o"}, {"64", "25%"}, {"auto", "int8"});
  ASSERT_EQ(cells.size(), 6u);
  EXPECT_EQ(cells[0].key(), "full||auto");
  EXPECT_EQ(cells[2].key(), "h2o|25%|auto");
  EXPECT_EQ(cells[3].key(), "full||int8");
  EXPECT_EQ(cells[1].words({{"interval", "8"}}),
            (KvOptions{{"policy", "h2o"}, {"budget", "64"}, {"interval", "8"}}));
  EXPECT_EQ(cells[0].words({{"interval", "8"}}), (KvOptions{{"policy", "full"}}));
  EXPECT_EQ(make_grid({"h2o", "full", "h2o"}, {"64", "64"}, {"auto", "auto"}).size(), 2u);
}

class ResultsFile : public ::testing::Test {
 protected:
  std::string path() const { return (folder_.path() / "r.jsonl").string(); }
  std::string text() const {
    std::ifstream in(path(), std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  testing::TempFolder folder_;
  const Json settings_ = {{"task", "kld"}, {"seed", 1}};
  const Cell cell_{"h2o", "64", "auto"};
};

TEST_F(ResultsFile, GoesOnWhereItStopped) {
  {
    auto r = Results::open(path(), settings_);
    ASSERT_TRUE(r.ok()) << r.status();
    ASSERT_TRUE(r->add(cell_, 0, {{"x", 0.1}}).ok());
    ASSERT_TRUE(r->add(cell_, 1, {{"x", 0.2}}).ok());
    ASSERT_TRUE(r->add_times(cell_, {{"seconds", 1.5}}).ok());
  }
  {  // stopped while a line was written
    std::ofstream out(path(), std::ios::app | std::ios::binary);
    out << R"({"cell":"h2o|64|auto","sample":2,"val)";
  }
  {
    auto r = Results::open(path(), settings_);
    ASSERT_TRUE(r.ok()) << r.status();
    ASSERT_NE(r->find(cell_, 1), nullptr);
    EXPECT_EQ((*r->find(cell_, 1))["x"], 0.2);
    EXPECT_EQ(r->find(cell_, 2), nullptr);
    EXPECT_EQ(r->find({"h2o", "65", "auto"}, 0), nullptr);
    ASSERT_EQ(r->times(cell_).size(), 1u);
    ASSERT_TRUE(r->add(cell_, 2, {{"x", 0.3}}).ok());
  }
  auto again = Results::open(path(), settings_);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again->find(cell_, 2))["x"], 0.3);
  EXPECT_EQ(text().back(), '\n');
}

TEST_F(ResultsFile, IsOneRunsAlone) {
  {
    auto first = Results::open(path(), settings_);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = Results::open(path(), settings_);
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.status().message().find("another run"), std::string::npos);
    Results moved = *std::move(first);
    EXPECT_FALSE(Results::open(path(), settings_).ok());
    EXPECT_TRUE(moved.add(cell_, 0, {{"x", 1}}).ok());
  }
  EXPECT_TRUE(Results::open(path(), settings_).ok());
}

TEST_F(ResultsFile, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  const auto r = Results::open("/dev/full", settings_);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.status().message().find("/dev/full"), std::string::npos) << r.status();
  EXPECT_FALSE(Results::open(folder_.path().string(), settings_).ok());  // a folder
}

TEST_F(ResultsFile, TakesOtherSettingsWhereNothingWasMeasured) {
  ASSERT_TRUE(Results::open(path(), settings_).ok());
  const Json mended = {{"task", "kld"}, {"seed", 2}};
  ASSERT_TRUE(Results::open(path(), mended).ok());
  ASSERT_TRUE(Results::open(path(), mended)->add(cell_, 0, {{"x", 1}}).ok());
  EXPECT_FALSE(Results::open(path(), settings_).ok());
  EXPECT_NE(Results::open(path(), mended)->find(cell_, 0), nullptr);
}

TEST_F(ResultsFile, RefusesOtherSettings) {
  ASSERT_TRUE(Results::open(path(), settings_)->add(cell_, 0, {{"x", 1}}).ok());
  const std::string before = text();
  const auto other = Results::open(path(), {{"task", "kld"}, {"seed", 2}});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(other.status().message().find("seed was 1 there and is 2 now"), std::string::npos)
      << other.status();
  EXPECT_EQ(text(), before);
  std::ofstream(path()) << "something else\n";
  EXPECT_FALSE(Results::open(path(), settings_).ok());
}

}  // namespace
}  // namespace pagefold::eval
