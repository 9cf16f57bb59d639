#include "quantize/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <vector>

#include "base/file.h"

namespace pagefold {
namespace {

namespace fs = std::filesystem;

// What a checkpoint may consist of: a new one must not be read together with an old one's files.
bool is_model_file(const fs::path& file) {
  const std::string name = file.filename().string();
  if (file.extension() == ".safetensors") return true;
  for (const char* known :
       {"config.json", "generation_config.json", "model.safetensors.index.json", "tokenizer.json",
        "tokenizer_config.json", "chat_template.jinja", "quant_config.json", "quantize_config.json",
        "special_tokens_map.json"}) {
    if (name == known) return true;
  }
  return false;
}

// A rename is on the disk only when its folder is.
void sync_folder(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

Result<std::vector<fs::path>> entries(const fs::path& folder) {
  std::error_code ec;
  std::vector<fs::path> out;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec))
    out.push_back(it->path());
  if (ec) return io_error("{}: {}", folder.string(), ec.message());
  return out;
}

// The beginning of the name of a temporary folder for this target; six letters follow.
std::string temporary_name(const fs::path& target) {
  return "." + target.filename().string() + ".";
}

// Opened and locked; or -1, with errno EWOULDBLOCK where another run holds it.
int lock_folder(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  errno = error;
  return -1;
}

bool is_temporary(const fs::path& path, const std::string& begin) {
  const std::string name = path.filename().string();
  std::error_code ec;
  return name.size() == begin.size() + 6 && name.starts_with(begin) && fs::is_directory(path, ec);
}

// Temporary folders of runs that were killed hold no lock and do not count.
Status nobody_writes(const fs::path& target, const fs::path& where) {
  PF_ASSIGN(const std::vector<fs::path> inside, entries(where));
  for (const fs::path& path : inside) {
    if (!is_temporary(path, temporary_name(target))) continue;
    const int fd = lock_folder(path);
    if (fd < 0 && errno == EWOULDBLOCK) {
      return bad_input("{}: another run writes this folder ({})", target.string(), path.string());
    }
    if (fd >= 0) ::close(fd);
  }
  return ok_status();
}

// Nothing in it but what runs that were killed left there.
Result<bool> is_free(const fs::path& target) {
  PF_ASSIGN(const std::vector<fs::path> inside, entries(target));
  return std::all_of(inside.begin(), inside.end(), [&](const fs::path& path) {
    return is_temporary(path, temporary_name(target));
  });
}

}  // namespace

Result<OutputFolder> OutputFolder::create(const fs::path& given, bool force) {
  std::error_code ec;
  fs::path target = fs::absolute(given, ec).lexically_normal();
  if (ec || given.empty()) return bad_input("'{}': no name of a folder", given.string());
  if (!target.has_filename()) target = target.parent_path();  // "out/"
  OutputFolder out;
  out.force_ = force;
  fs::path where = target.parent_path();
  const fs::file_status kind = fs::status(target, ec);
  if (fs::exists(kind)) {
    if (!fs::is_directory(kind)) return bad_input("{}: exists and is no folder", given.string());
    target = where = fs::canonical(target, ec);
    if (ec) return io_error("{}: {}", given.string(), ec.message());
    PF_ASSIGN(const bool free, is_free(target));
    if (!free && !force) {
      return bad_input("{}: the folder is not empty; --force replaces the model in it",
                       given.string());
    }
  } else {
    if (fs::is_symlink(fs::symlink_status(target, ec)))
      return bad_input("{}: a link that leads nowhere", given.string());
    fs::create_directories(where, ec);
    if (ec) return io_error("{}: {}", where.string(), ec.message());
  }
  out.target_ = std::move(target);
  PF_TRY(nobody_writes(out.target_, where));
  PF_TRY(out.make_temporary(where));
  return out;
}

Status OutputFolder::make_temporary(const fs::path& where) {
  std::string name = (where / (temporary_name(target_) + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr)
    return io_error("{}: cannot create a folder there: {}", where.string(), std::strerror(errno));
  ::chmod(name.c_str(), 0755);
  temporary_ = name;
  lock_ = lock_folder(temporary_);  // without locks (some network disks) nobody is warned
  return ok_status();
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      force_(other.force_),
      lock_(std::exchange(other.lock_, -1)) {}

OutputFolder::~OutputFolder() {
  std::error_code ec;
  if (!temporary_.empty()) fs::remove_all(temporary_, ec);
  if (lock_ >= 0) ::close(lock_);
}

Status OutputFolder::write(std::string_view name, std::string_view content) {
  return write_file_atomic(temporary_ / name, content);
}

Status OutputFolder::commit() {
  sync_folder(temporary_);
  // Onto nothing or onto an empty folder this is one step.
  const bool inside = temporary_.parent_path() == target_;
  if (inside || ::rename(temporary_.c_str(), target_.c_str()) != 0) {
    if (!inside && errno != ENOTEMPTY && errno != EEXIST)
      return io_error("{}: {}", target_.string(), std::strerror(errno));
    PF_ASSIGN(const bool free, is_free(target_));
    if (!free && !force_)
      return bad_input("{}: the folder was filled meanwhile; nothing in it was changed",
                       target_.string());
    PF_TRY(move_into_existing());
  }
  temporary_.clear();
  sync_folder(target_.parent_path());
  return ok_status();
}

Status OutputFolder::move_into_existing() {
  PF_ASSIGN(std::vector<fs::path> old, entries(target_));
  std::error_code ec;
  // Without config.json it is no model, so none is read that is half of one and half of another.
  const auto is_config = [](const fs::path& file) { return file.filename() == "config.json"; };
  std::stable_partition(old.begin(), old.end(), is_config);
  for (const fs::path& file : old) {
    if (is_model_file(file) && !fs::is_directory(file, ec) && !fs::remove(file, ec))
      return io_error("{}: {}", file.string(), ec.message());
  }
  PF_ASSIGN(std::vector<fs::path> files, entries(temporary_));
  std::stable_partition(files.begin(), files.end(), std::not_fn(is_config));
  for (const fs::path& file : files) {
    fs::rename(file, target_ / file.filename(), ec);
    if (ec) return io_error("{}: {}", (target_ / file.filename()).string(), ec.message());
  }
  fs::remove_all(temporary_, ec);
  return ok_status();
}

}  // namespace pagefold
