#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pagefold {
namespace {

constexpr size_t kPages = 8;

size_t page() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "pagefold_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(std::string_view content) {
    EXPECT_TRUE(write_file_atomic(folder_ / "file", content).ok());
    return folder_ / "file";
  }

  std::filesystem::path folder_;
};

// Resident kilobytes of the map that holds p, as /proc/self/smaps counts them for this process.
size_t resident_kib(const std::byte* p) {
  std::FILE* smaps = std::fopen("/proc/self/smaps", "r");
  char line[512];
  bool inside = false;
  size_t found = 0;
  while (std::fgets(line, sizeof line, smaps)) {
    unsigned long first = 0, last = 0, kib = 0;
    if (std::sscanf(line, "%lx-%lx ", &first, &last) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(p);
      inside = at >= first && at < last;
    } else if (inside && std::sscanf(line, "Rss: %lu kB", &kib) == 1) {
      found = kib;
    }
  }
  std::fclose(smaps);
  return found;
}

TEST_F(FileTest, DropsOnlyWholePagesOfARange) {
  const std::string content(kPages * page(), 'x');
  const auto map = MappedFile::open(write(content));
  ASSERT_TRUE(map.ok()) << map.status();
  const auto bytes = map->bytes();
  const auto touch = [&] {
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{'x'}),
              static_cast<std::ptrdiff_t>(content.size()));
    return resident_kib(bytes.data());
  };
  const size_t all = touch();
  ASSERT_EQ(all, kPages * page() / 1024);
  const size_t one = page() / 1024;

  map->drop_range(1, 3 * page() - 2);  // pages 0 and 2 are only touched in part
  EXPECT_EQ(resident_kib(bytes.data()), all - one);
  touch();
  map->drop_range(2 * page(), ~size_t{0});  // cut to the file
  EXPECT_EQ(resident_kib(bytes.data()), 2 * one);
  touch();
  map->drop_range(kPages * page(), 1);
  map->drop_range(~size_t{0}, ~size_t{0});
  EXPECT_EQ(resident_kib(bytes.data()), all);
  drop_mapped(bytes.subspan(page(), 2 * page()));
  EXPECT_EQ(resident_kib(bytes.data()), all - 2 * one);
  touch();
  map->drop_pages();
  EXPECT_EQ(resident_kib(bytes.data()), 0u);
  EXPECT_EQ(touch(), all);
}

// Dropping pages of memory that is not a file's would zero it.
TEST_F(FileTest, DropMappedLeavesOtherMemoryAlone) {
  const auto map = MappedFile::open(write(std::string(page(), 'x')));
  ASSERT_TRUE(map.ok()) << map.status();
  std::vector<std::byte> heap(kPages * page(), std::byte{7});
  drop_mapped(heap);
  EXPECT_EQ(std::count(heap.begin(), heap.end(), std::byte{7}),
            static_cast<std::ptrdiff_t>(heap.size()));
  drop_mapped({});
  const std::byte* address = nullptr;
  {
    MappedFile first = *MappedFile::open(folder_ / "file");
    const MappedFile second = std::move(first);
    address = second.bytes().data();
    drop_mapped(second.bytes());
    EXPECT_EQ(second.bytes()[0], std::byte{'x'});
  }
  // The address may belong to anybody now; ours take it if they can.
  void* taken = ::mmap(const_cast<std::byte*>(address), page(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_NE(taken, MAP_FAILED);
  auto* bytes = static_cast<std::byte*>(taken);
  bytes[0] = std::byte{7};
  drop_mapped({bytes, page()});
  EXPECT_EQ(bytes[0], std::byte{7});
  ::munmap(taken, page());
}

}  // namespace
}  // namespace pagefold
