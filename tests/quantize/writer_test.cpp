// Checkpoints and folders as they come into being.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "formats/safetensors.h"
#include "model/model_runner.h"
#include "quantize/output_folder.h"
#include "quantize/safetensors_writer.h"

namespace pagefold {
namespace {

using testing::TempFolder;
namespace fs = std::filesystem;

std::vector<std::byte> pattern(size_t n, int seed) {
  std::vector<std::byte> out;
  for (size_t i = 0; i < n; ++i)
    out.push_back(static_cast<std::byte>((i * 31 + static_cast<size_t>(seed)) & 255));
  return out;
}
std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& e : fs::directory_iterator(folder)) out.push_back(e.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}
void touch(const fs::path& path) { std::ofstream(path) << "x"; }

TEST(SafetensorsWriter, ReadersGetEveryTensorBack) {
  for (const uint64_t shard : {uint64_t{1}, uint64_t{500}, uint64_t{1} << 30}) {
    SCOPED_TRACE(shard);
    const TempFolder folder;
    // Far fewer tensors announced than come: only the number of files may change.
    SafetensorsWriter w(folder.path(), shard, 2);
    const TensorType types[] = {TensorType::F32, TensorType::U8, TensorType::F16, TensorType::I32,
                                TensorType::F8_E4M3};
    for (int i = 0; i < 20; ++i) {
      const TensorType type = types[i % 5];
      const int64_t rows = 1 + i % 4, cols = 3 + i;  // many sizes are no multiple of 8
      const auto bytes =
          pattern(static_cast<size_t>(rows * cols * tensor_type_info(type).block_bytes), i);
      ASSERT_TRUE(w.begin(fmt::format("layer.{}.\"x\"", i), type, {rows, cols}).ok());
      ASSERT_TRUE(w.write(std::span(bytes).first(bytes.size() / 2)).ok());
      ASSERT_TRUE(w.write(std::span(bytes).subspan(bytes.size() / 2)).ok());
      ASSERT_TRUE(w.end().ok());
    }
    ASSERT_TRUE(w.add("scalar", TensorType::U8, {}, pattern(1, 9)).ok());
    ASSERT_TRUE(w.finish().ok());
    const auto set = SafetensorsSet::open(folder.path());
    ASSERT_TRUE(set.ok()) << set.status();
    ASSERT_EQ(set->tensors().size(), 21u);
    EXPECT_TRUE(set->find("scalar")->shape.empty());
    for (int i = 0; i < 20; ++i) {
      const TensorInfo* t = set->find(fmt::format("layer.{}.\"x\"", i));
      ASSERT_NE(t, nullptr);
      EXPECT_EQ(t->type, types[i % 5]);
      EXPECT_EQ(t->shape, (std::vector<int64_t>{1 + i % 4, 3 + i}));
      const auto want = pattern(t->data.size(), i);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), t->data.begin(), t->data.end()));
      // Maps begin at a page, so this is the place in the file.
      EXPECT_EQ(reinterpret_cast<uintptr_t>(t->data.data()) %
                    static_cast<uintptr_t>(tensor_type_info(t->type).block_bytes),
                0u);
    }
    const auto files = files_in(folder.path());
    if (shard == 1) {
      EXPECT_EQ(files.size(), 22u);  // a tensor each, and the index
      EXPECT_EQ(files[0], "model-00001-of-00021.safetensors");
    }
    for (const std::string& name : files) EXPECT_TRUE(name.find("part") == std::string::npos);
  }
}

TEST(SafetensorsWriter, OneFileWhereAllFits) {
  const TempFolder folder;
  SafetensorsWriter w(folder.path(), 1 << 20, 2);
  ASSERT_TRUE(w.add("a", TensorType::F32, {2, 2}, pattern(16, 0)).ok());
  ASSERT_TRUE(w.add("b", TensorType::F32, {2}, pattern(8, 0)).ok());
  ASSERT_TRUE(w.finish().ok());
  EXPECT_EQ(files_in(folder.path()), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(w.data_bytes(), 24u);
}

TEST(SafetensorsWriter, AFolderThatIsNotThereIsAnErrorThatNamesIt) {
  SafetensorsWriter w("/nowhere/at/all", 1 << 20, 2);
  const Status s = w.add("a", TensorType::F32, {1}, pattern(4, 0));
  ASSERT_FALSE(s.ok());
  EXPECT_NE(message_of(s).find("/nowhere/at/all"), std::string::npos);
}

TEST(OutputFolder, AppearsAtTheCommit) {
  const TempFolder base;
  const fs::path target = base.path() / "new" / "model";
  {
    auto folder = OutputFolder::create(target, false);
    ASSERT_TRUE(folder.ok()) << folder.status();
    ASSERT_TRUE(folder->write("config.json", "{}").ok());
    EXPECT_FALSE(fs::exists(target));
    ASSERT_TRUE(folder->commit().ok());
  }
  EXPECT_EQ(files_in(target), std::vector<std::string>{"config.json"});
  EXPECT_EQ(files_in(target.parent_path()).size(), 1u);
}

TEST(OutputFolder, WithoutACommitNothingStays) {
  const TempFolder base;
  {
    auto folder = OutputFolder::create(base.path() / "model/", false);
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE(folder->write("model.safetensors", "x").ok());
  }
  EXPECT_TRUE(files_in(base.path()).empty());
}

TEST(OutputFolder, AFullFolderNeedsForceAndKeepsWhatIsNoModel) {
  const TempFolder base;
  touch(base.path() / "notes.txt");
  touch(base.path() / "model-00001-of-00002.safetensors");
  touch(base.path() / "config.json");
  const auto refused = OutputFolder::create(base.path(), false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(message_of(refused.status()).find("--force"), std::string::npos);
  auto folder = OutputFolder::create(base.path(), true);
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_TRUE(folder->write("model.safetensors", "new").ok());
  ASSERT_TRUE(folder->commit().ok());
  EXPECT_EQ(files_in(base.path()), (std::vector<std::string>{"model.safetensors", "notes.txt"}));
}

TEST(OutputFolder, AFileOfThatNameIsRefused) {
  const TempFolder base;
  touch(base.path() / "model");
  EXPECT_FALSE(OutputFolder::create(base.path() / "model", true).ok());
  EXPECT_FALSE(OutputFolder::create("", true).ok());
}

// Found before the long work, not after it.
TEST(OutputFolder, LinksAreFollowedAndMustLeadSomewhere) {
  const TempFolder base;
  fs::create_directory(base.path() / "disk");
  fs::create_directory_symlink("disk", base.path() / "link");
  auto folder = OutputFolder::create(base.path() / "link", false);
  ASSERT_TRUE(folder.ok()) << folder.status();
  // On the disk that the link leads to: a rename does not cross disks.
  EXPECT_EQ(folder->path().parent_path(), base.path() / "disk");
  ASSERT_TRUE(folder->write("config.json", "{}").ok());
  ASSERT_TRUE(folder->write("model.safetensors", "x").ok());
  ASSERT_TRUE(folder->commit().ok());
  EXPECT_EQ(files_in(base.path() / "disk"),
            (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_TRUE(fs::is_symlink(base.path() / "link"));
  fs::create_directory_symlink("nowhere", base.path() / "dangling");
  fs::create_directory_symlink("loop", base.path() / "loop");
  for (const char* name : {"dangling", "loop"}) {
    const auto refused = OutputFolder::create(base.path() / name, true);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(message_of(refused.status()).find(name), std::string::npos);
  }
  EXPECT_EQ(files_in(base.path()).size(), 4u);
}

TEST(OutputFolder, ASecondRunIsRefusedWhileTheFirstWrites) {
  const TempFolder base;
  const fs::path made = base.path() / "model";
  for (const bool there : {false, true}) {
    if (there) fs::create_directory(made);
    {
      auto first = OutputFolder::create(made, false);
      ASSERT_TRUE(first.ok()) << first.status();
      for (const bool force : {false, true}) {
        const auto second = OutputFolder::create(made, force);
        ASSERT_FALSE(second.ok());
        EXPECT_NE(message_of(second.status()).find("another run"), std::string::npos);
      }
      EXPECT_TRUE(OutputFolder::create(base.path() / "other", false).ok());
    }
    EXPECT_TRUE(OutputFolder::create(made, false).ok());
  }
  // What a killed run left holds no lock and is nobody's model.
  fs::create_directory(base.path() / ".model.AbCdEf");
  fs::create_directory(made / ".model.AbCdEf");
  EXPECT_TRUE(OutputFolder::create(made, false).ok());
}

TEST(OutputFolder, WhatAppearedMeanwhileStays) {
  const TempFolder base;
  const fs::path made = base.path() / "model";
  for (const bool there : {false, true}) {
    fs::remove_all(made);
    if (there) fs::create_directory(made);
    auto folder = OutputFolder::create(made, false);
    ASSERT_TRUE(folder.ok()) << folder.status();
    ASSERT_TRUE(folder->write("config.json", "{}").ok());
    fs::create_directories(made);
    touch(made / "model.safetensors");
    const Status s = folder->commit();
    EXPECT_NE(message_of(s).find("meanwhile"), std::string::npos) << s;
    EXPECT_TRUE(fs::exists(made / "model.safetensors"));
    EXPECT_FALSE(fs::exists(made / "config.json"));
  }
}

TEST(OutputFolder, AnEmptyFolderIsTaken) {
  const TempFolder base;
  fs::create_directory(base.path() / "model");
  auto folder = OutputFolder::create(base.path() / "model", false);
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(folder->write("a", "b").ok());
  ASSERT_TRUE(folder->commit().ok());
  EXPECT_EQ(files_in(base.path() / "model"), std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace pagefold
