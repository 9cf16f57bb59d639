// Models from a Hugging Face style hub: HF_ENDPOINT/api/models/ID/revision/REV?blobs=true lists the
// files ("siblings": rfilename, size, lfs.sha256) and the commit ("sha"); /ID/resolve/COMMIT/FILE
// gives one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/pull/spec.h"

namespace pagefold {

struct HubFile {
  std::string name;
  std::optional<uint64_t> size;
  std::string sha256;  // of large files; empty for small ones
};
struct HubListing {
  std::string commit;
  std::vector<HubFile> files;
};
// Refuses names that would leave the folder they are stored in.
Result<HubListing> parse_listing(std::string_view json);

// The files a model needs. wanted empty: configuration, tokenizer and safetensors of a Hugging Face
// folder, or the only GGUF (all parts of a split one). wanted set: that file, or the GGUF whose
// name contains it in any case. entry: what to load, "" for the folder.
struct Selection {
  std::vector<HubFile> files;
  std::string entry;
};
Result<Selection> select_files(const HubListing& listing, const std::string& wanted);

// Returns the path to load.
Result<std::filesystem::path> pull_hub(const PullSpec& spec, const std::string& source,
                                       const std::filesystem::path& root);

}  // namespace pagefold
