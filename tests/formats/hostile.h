// Running a reader on damaged input: what it may cost, and what its message must say.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/tensor_file.h"
#include "support/gguf_writer.h"

namespace pagefold::testing {

inline long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Calls read(), which must fail within 1 s and 100 MB with a message that has every one of `words`.
template <class Read>
void expect_refused(Read read, const std::vector<std::string>& words) {
  const long before = peak_kib();
  const auto start = std::chrono::steady_clock::now();
  const auto result = read();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 1.0);
  EXPECT_LT(peak_kib() - before, 100 * 1000);
  ASSERT_FALSE(result.ok());
  for (const std::string& word : words) {
    EXPECT_THAT(message_of(result.status()), ::testing::HasSubstr(word));
  }
}

// Touches every byte of every tensor, so that a span beyond its file is caught by the sanitizer.
inline uint64_t sum_of_bytes(const std::vector<TensorInfo>& tensors) {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : tensors) {
    for (const std::byte b : tensor.data) sum += static_cast<uint64_t>(b);
  }
  return sum;
}

// Cuts of `file` at every length, then every single-byte change of a set: parse() must return each
// time, and a cut must be refused. The bytes live in a buffer of exactly their size.
template <class Parse>
void expect_robust(const Bytes& file, Parse parse) {
  for (size_t length = 0; length < file.size(); ++length) {
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
    const auto result = parse(cut);
    ASSERT_FALSE(result.ok()) << "cut at " << length;
    ASSERT_THAT(message_of(result.status()), ::testing::HasSubstr("small.file"));
  }
  for (size_t at = 0; at < file.size(); ++at) {
    for (const unsigned mask : {0x01u, 0x02u, 0x10u, 0x80u, 0xffu}) {
      Bytes changed = file;
      changed[at] ^= static_cast<std::byte>(mask);
      const auto result = parse(changed);
      if (result.ok()) {
        (void)sum_of_bytes(result->tensors());
      } else {
        ASSERT_THAT(message_of(result.status()), ::testing::HasSubstr("small.file"));
      }
    }
  }
}

// A folder of its own for a test, removed afterwards.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "pagefold_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace pagefold::testing
