// SHA-256 (FIPS 180-4), through OpenSSL.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::string_view bytes);
  std::string hex();  // once, at the end: 64 lower-case digits

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Result<std::string> sha256_of_file(const std::filesystem::path& path);

}  // namespace pagefold
