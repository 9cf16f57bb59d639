#include "cli/pull/disk.h"

#include <sys/statvfs.h>

#include <cerrno>

namespace pagefold {
namespace {

std::string mib(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::optional<uint64_t> room_in(const std::filesystem::path& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

bool means_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

bool says_full(std::string_view text) {
  for (const std::string_view words :
       {"No space left on device", "Disk quota exceeded", "File too large"}) {
    if (text.find(words) != std::string_view::npos) return true;
  }
  return false;
}

Status full_disk(std::string_view what, const std::filesystem::path& folder,
                 std::optional<uint64_t> needed) {
  const auto room = room_in(folder);
  const std::string need = needed ? mib(*needed) + " more are needed" : "";
  const std::string free = room ? mib(*room) + " are free" : "";
  return exhausted(
      "{}: no room left in {}{}{}{}{}; make room, or set PAGEFOLD_CACHE to a folder on "
      "another disk",
      what, folder.string(), needed || room ? " (" : "", need, needed && room ? ", " + free : free,
      needed || room ? ")" : "");
}

}  // namespace pagefold
