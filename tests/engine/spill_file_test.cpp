#include "engine/spill_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <vector>

#include "support/fake_model.h"

namespace pagefold {
namespace {

std::string folder() { return std::filesystem::temp_directory_path().string(); }

std::vector<std::byte> bytes_of(size_t n, uint64_t seed) {
  std::vector<std::byte> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(testing::mix(seed, i));
  return out;
}

TEST(SpillFile, GivesBackWhatWasWritten) {
  auto file = SpillFile::create(folder(), 1 << 20);
  ASSERT_TRUE(file.ok()) << file.status();
  std::mt19937 random(5);
  struct Piece {
    std::unique_ptr<SpillFile::Extent> extent;
    std::vector<std::byte> bytes;
  };
  std::vector<Piece> pieces;
  uint64_t used = 0;
  for (uint64_t step = 0; step < 2000; ++step) {
    if (random() % 2 == 0 && pieces.size() < 20) {
      const size_t n = random() % 60000;
      auto extent = (*file)->take(n);
      if (used + n > 1 << 20) {
        EXPECT_EQ(extent.status().code(), absl::StatusCode::kResourceExhausted);
        continue;
      }
      ASSERT_TRUE(extent.ok()) << extent.status();
      pieces.push_back({*std::move(extent), bytes_of(n, step)});
      used += n;
      const size_t half = n / 2;
      const std::span<const std::byte> all = pieces.back().bytes;
      ASSERT_TRUE(pieces.back().extent->place().write(half, all.subspan(half)).ok());
      ASSERT_TRUE(pieces.back().extent->place().write(0, all.first(half)).ok());
    } else if (!pieces.empty()) {
      const size_t i = random() % pieces.size();
      std::vector<std::byte> back(pieces[i].bytes.size());
      ASSERT_TRUE(pieces[i].extent->place().read(0, back).ok());
      ASSERT_EQ(back, pieces[i].bytes);
      used -= back.size();
      pieces.erase(pieces.begin() + static_cast<int64_t>(i));
    }
    ASSERT_EQ((*file)->used_bytes(), used);
  }
}

TEST(SpillFile, HasNoName) {
  const auto entries = [] {
    int64_t n = 0;
    for (const auto& e : std::filesystem::directory_iterator(folder())) {
      n += e.path().filename().string().starts_with("pagefold-spill") ? 1 : 0;
    }
    return n;
  };
  const int64_t before = entries();
  auto file = SpillFile::create(folder(), 1 << 20);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto extent = (*file)->take(100);
  ASSERT_TRUE((*extent)->place().write(0, bytes_of(100, 1)).ok());
  EXPECT_EQ(entries(), before);
}

TEST(SpillFile, AFolderThatIsNotThereIsAnError) {
  const auto file = SpillFile::create("/nowhere/at/all", 100);
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find("/nowhere/at/all"), std::string::npos);
}

// A disk that takes no more: the write says so, and the space can be used again.
TEST(SpillFile, AFullDiskIsAnErrorOfOneWrite) {
  auto file = SpillFile::create(folder(), 1 << 20);
  ASSERT_TRUE(file.ok()) << file.status();
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{50000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    const auto extent = (*file)->take(100000);
    ASSERT_TRUE(extent.ok());
    const Status written = (*extent)->place().write(0, bytes_of(100000, 1));
    EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ((*file)->used_bytes(), 0u);
  const auto extent = (*file)->take(40000);
  EXPECT_TRUE((*extent)->place().write(0, bytes_of(40000, 2)).ok());
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);
}

}  // namespace
}  // namespace pagefold
