#include "cli/pull/sha256.h"

#include <openssl/evp.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/check.h"

namespace pagefold {

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(md); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  PF_CHECK(context_->md && EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr) == 1,
           "OpenSSL has no SHA-256");
}
Sha256::~Sha256() = default;

void Sha256::update(std::string_view bytes) {
  PF_CHECK(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  PF_CHECK(EVP_DigestFinal_ex(context_->md, digest, &size) == 1);
  std::string out;
  for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

Result<std::string> sha256_of_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return io_error("{}: {}", path.string(), std::strerror(errno));
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.update({buffer.data(), static_cast<size_t>(in.gcount())});
  }
  if (in.bad()) return io_error("{}: read failed", path.string());
  return hash.hex();
}

}  // namespace pagefold
