// The folder of pulled models, and what is in it. A model's folder holds a manifest.json once the
// pull is whole: {"source", "commit", "entry", "files": {NAME: {"size", "sha256"}}}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/pull/spec.h"

namespace pagefold {

struct CachedFile {
  uint64_t size = 0;
  std::string sha256;
};
struct Manifest {
  std::string source;  // as the user named it
  std::string commit;  // of a hub model
  std::string entry;   // what to load, relative to the folder; "" = the folder itself
  std::map<std::string, CachedFile> files;
};
std::string manifest_to_json(const Manifest& manifest);
Result<Manifest> manifest_from_json(std::string_view text);
Result<Manifest> read_manifest(const std::filesystem::path& folder);
Status write_manifest(const std::filesystem::path& folder, const Manifest& manifest);
// Every file of the manifest is there with its size.
bool is_complete(const std::filesystem::path& folder, const Manifest& manifest);

// Makes a folder and its parents; the error names the path.
Status make_folders(const std::filesystem::path& path);

// The path of a pulled model, if it is whole. A package without a version: the one pulled last.
std::optional<std::filesystem::path> find_cached(const std::filesystem::path& root,
                                                 const PullSpec& spec);

// What a MODEL argument means: a path that exists, a pulled model ("pypi:NAME", "NAME" of a
// package, "OWNER/NAME"), or, when empty, the default model. Errors say how to pull it.
Result<std::string> resolve_model(const std::string& argument);

}  // namespace pagefold
