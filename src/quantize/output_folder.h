// A folder that appears whole or not at all: it is written under a temporary name beside the target
// and renamed at the end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

class OutputFolder {
 public:
  // Refuses (kInvalidArgument) a target that is a file, or a folder with something in it unless
  // force is set. Nothing is created under the target's own name before commit().
  static Result<OutputFolder> create(const std::filesystem::path& target, bool force);
  ~OutputFolder();  // removes what was not committed
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;

  // Where to write until commit().
  const std::filesystem::path& path() const { return temporary_; }
  Status write(std::string_view name, std::string_view content);
  // The files take their place. Into a folder that has files (force): the model files of an earlier
  // checkpoint there are removed first, everything else stays.
  Status commit();

 private:
  OutputFolder(std::filesystem::path target, std::filesystem::path temporary)
      : target_(std::move(target)), temporary_(std::move(temporary)) {}
  Status move_into_existing();

  std::filesystem::path target_, temporary_;  // temporary_ empty: committed
};

}  // namespace pagefold
