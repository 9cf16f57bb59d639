// What an unpacked wheel says and holds.
#include <algorithm>
#include <charconv>

#include "cli/pull/pypi.h"

namespace pagefold {
namespace {

namespace fs = std::filesystem;
constexpr int kMaxParts = 1000;

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

template <class F>
void for_each_line(std::string_view text, F f) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    f(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// "name-part12==1.0" -> package, number, version; anything else is no part.
bool parse_part(std::string_view requirement, PartPackage& part) {
  const size_t eq = requirement.find("==");
  const std::string_view name = trim(requirement.substr(0, eq));
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  std::string_view stem = name.substr(0, digits);
  if (digits == name.size() || name.size() - digits > 4) return false;
  if (stem.ends_with('-') || stem.ends_with('_')) stem.remove_suffix(1);
  if (!stem.ends_with("-part") && !stem.ends_with("_part")) return false;
  std::from_chars(name.data() + digits, name.data() + name.size(), part.number);
  part.package = name;
  part.version = eq == std::string_view::npos ? "" : trim(requirement.substr(eq + 2));
  return true;
}

}  // namespace

Result<std::vector<PartPackage>> part_packages(std::string_view metadata) {
  std::vector<PartPackage> parts;
  bool in_headers = true;
  for_each_line(metadata, [&](std::string_view line) {
    if (trim(line).empty()) in_headers = false;  // the description follows
    PartPackage part;
    constexpr std::string_view kKey = "Requires-Dist:";
    if (in_headers && line.starts_with(kKey) && line.find(';') == std::string_view::npos &&
        parse_part(trim(line.substr(kKey.size())), part)) {
      parts.push_back(part);
    }
  });
  if (parts.size() > kMaxParts) return bad_data("the package has more than {} parts", kMaxParts);
  std::sort(parts.begin(), parts.end(),
            [](const PartPackage& a, const PartPackage& b) { return a.number < b.number; });
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].number != parts[0].number + static_cast<int>(i)) {
      return bad_data("the package's parts are not numbered one after the other");
    }
    const std::string name =
        parts[i].package + (parts[i].version.empty() ? "" : "==") + parts[i].version;
    const auto spec = parse_pull_spec("pypi:" + name);
    if (!spec.ok()) return spec.status();
  }
  return parts;
}

Result<std::map<std::string, std::string>> parse_sha256sums(std::string_view text) {
  std::map<std::string, std::string> sums;
  Status fault = ok_status();
  for_each_line(text, [&](std::string_view line) {
    line = trim(line);
    if (line.empty()) return;
    const std::string_view hash = line.substr(0, 64);
    std::string_view name = line.size() > 64 ? trim(line.substr(64)) : std::string_view();
    if (name.starts_with('*')) name.remove_prefix(1);
    if (hash.find_first_not_of("0123456789abcdef") != std::string_view::npos || name.empty() ||
        name.find('/') != std::string_view::npos || !is_safe_relative_path(name)) {
      fault = bad_data("SHA256SUMS: a line is not 'HASH  NAME'");
      return;
    }
    sums[std::string(name)] = hash;
  });
  if (!fault.ok()) return fault;
  return sums;
}

Result<Found> find_model(const fs::path& unpacked) {
  std::vector<fs::path> ggufs, folders;
  std::error_code ec;
  for (auto it = fs::recursive_directory_iterator(unpacked, ec);
       !ec && it != fs::recursive_directory_iterator(); it.increment(ec)) {
    const fs::path& path = it->path();
    if (it->is_symlink(ec) || !it->is_regular_file(ec)) continue;
    if (path.extension() == ".gguf") ggufs.push_back(path);
    if (path.extension() == ".safetensors" && fs::exists(path.parent_path() / "config.json", ec) &&
        (folders.empty() || folders.back() != path.parent_path())) {
      folders.push_back(path.parent_path());
    }
  }
  if (ec) return io_error("{}: {}", unpacked.string(), ec.message());
  if (ggufs.size() == 1 && folders.empty()) return Found{ggufs[0], false};
  if (folders.size() == 1 && ggufs.empty()) return Found{folders[0], true};
  if (ggufs.empty() && folders.empty()) {
    return not_found(
        "no .gguf file and no folder with config.json and .safetensors in the package");
  }
  return unsupported("the package holds {} models; only packages with one are understood",
                     ggufs.size() + folders.size());
}

}  // namespace pagefold
