#include "quantize/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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

}  // namespace

Result<OutputFolder> OutputFolder::create(const fs::path& given, bool force) {
  std::error_code ec;
  fs::path target = fs::absolute(given, ec).lexically_normal();
  if (ec || given.empty()) return bad_input("'{}': no name of a folder", given.string());
  if (!target.has_filename()) target = target.parent_path();  // "out/"
  const fs::file_status kind = fs::status(target, ec);
  if (fs::exists(kind)) {
    if (!fs::is_directory(kind)) return bad_input("{}: exists and is no folder", given.string());
    PF_ASSIGN(const std::vector<fs::path> inside, entries(target));
    if (!inside.empty() && !force) {
      return bad_input("{}: the folder is not empty; --force replaces the model in it",
                       given.string());
    }
  }
  const fs::path parent = target.parent_path();
  fs::create_directories(parent, ec);
  if (ec) return io_error("{}: {}", parent.string(), ec.message());
  std::string name = (parent / ("." + target.filename().string() + ".XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr)
    return io_error("{}: cannot create a folder there: {}", parent.string(), std::strerror(errno));
  ::chmod(name.c_str(), 0755);
  return OutputFolder(std::move(target), name);
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : target_(std::move(other.target_)), temporary_(std::exchange(other.temporary_, {})) {}

OutputFolder::~OutputFolder() {
  std::error_code ec;
  if (!temporary_.empty()) fs::remove_all(temporary_, ec);
}

Status OutputFolder::write(std::string_view name, std::string_view content) {
  return write_file_atomic(temporary_ / name, content);
}

Status OutputFolder::commit() {
  sync_folder(temporary_);
  // Onto nothing or onto an empty folder this is one step.
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST)
      return io_error("{}: {}", target_.string(), std::strerror(errno));
    PF_TRY(move_into_existing());
  }
  temporary_.clear();
  sync_folder(target_.parent_path());
  return ok_status();
}

Status OutputFolder::move_into_existing() {
  PF_ASSIGN(const std::vector<fs::path> old, entries(target_));
  std::error_code ec;
  for (const fs::path& file : old) {
    if (is_model_file(file) && !fs::is_directory(file, ec) && !fs::remove(file, ec))
      return io_error("{}: {}", file.string(), ec.message());
  }
  PF_ASSIGN(const std::vector<fs::path> files, entries(temporary_));
  for (const fs::path& file : files) {
    fs::rename(file, target_ / file.filename(), ec);
    if (ec) return io_error("{}: {}", (target_ / file.filename()).string(), ec.message());
  }
  fs::remove_all(temporary_, ec);
  return ok_status();
}

}  // namespace pagefold
