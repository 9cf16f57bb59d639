// A folder that appears whole or not at all: it is written under a temporary name and renamed at
// the end. A target that is there already (empty, or with --force; perhaps a link, or the root of a
// file system) is filled from a temporary folder inside it, config.json last.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

class OutputFolder {
 public:
  // Refuses (kInvalidArgument) a target that is a file, a link that leads nowhere, one that another
  // run writes, or a folder with something in it unless force is set. Nothing is created under the
  // target's own name before commit().
  static Result<OutputFolder> create(const std::filesystem::path& target, bool force);
  ~OutputFolder();  // removes what was not committed
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;

  // Where to write until commit().
  const std::filesystem::path& path() const { return temporary_; }
  Status write(std::string_view name, std::string_view content);
  // The files take their place. Into a folder that has files (force): the model files of an earlier
  // checkpoint there are removed first, everything else stays. Refuses a target that was filled by
  // somebody else meanwhile, unless force is set.
  Status commit();

 private:
  OutputFolder() = default;
  Status make_temporary(const std::filesystem::path& where);
  Status move_into_existing();

  std::filesystem::path target_, temporary_;  // temporary_ empty: committed
  bool force_ = false;
  int lock_ = -1;  // of the temporary folder: tells other runs that somebody writes there
};

}  // namespace pagefold
