#include "cli/pull/hub.h"

#include <cstdlib>

#include "base/log.h"
#include "cli/pull/cache.h"
#include "cli/pull/disk.h"
#include "cli/pull/download.h"
#include "net/http_client.h"

namespace pagefold {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxListingBytes = 32 << 20;

struct Hub {
  std::string endpoint, token;
};

Result<Hub> hub_from_environment() {
  const char* endpoint = std::getenv("HF_ENDPOINT");
  const char* token = std::getenv("HF_TOKEN");
  Hub hub{endpoint && *endpoint ? endpoint : "https://huggingface.co", token ? token : ""};
  while (hub.endpoint.ends_with('/')) hub.endpoint.pop_back();
  const auto url = parse_url(hub.endpoint);
  if (!url.ok()) return with_context(url.status(), "HF_ENDPOINT");
  for (const char c : hub.token) {
    if (static_cast<unsigned char>(c) <= 32 || static_cast<unsigned char>(c) > 126) {
      return bad_input("HF_TOKEN holds a character that cannot be sent");
    }
  }
  if (!hub.token.empty() && !url->https) {
    log::warn("HF_TOKEN goes to {} without encryption", url->host_header());
  }
  return hub;
}

Status listing_error(int status, const std::string& id, const std::string& revision) {
  if (status == 401 || status == 403) {
    return {
        absl::StatusCode::kPermissionDenied,
        fmt::format("{}: HTTP {}: no such model, or it needs a token: set HF_TOKEN", id, status)};
  }
  if (status == 404) return not_found("{}: HTTP 404: no such model or revision '{}'", id, revision);
  return io_error("{}: the hub answered HTTP {}", id, status);
}

Result<HubListing> fetch_listing(const Hub& hub, const PullSpec& spec, const std::string& id) {
  HttpGet get;
  get.url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", hub.endpoint, encode_path(id),
                        encode_path(spec.revision));
  get.token = hub.token;
  HttpReply reply;
  PF_ASSIGN(const std::string body, http_get_text(get, kMaxListingBytes, reply));
  if (reply.status != 200) return listing_error(reply.status, id, spec.revision);
  auto listing = parse_listing(body);
  if (!listing.ok()) return with_context(listing.status(), id);
  return listing;
}

bool already_there(const fs::path& folder, const Manifest& old, const HubFile& file,
                   const std::string& commit) {
  const auto it = old.files.find(file.name);
  if (it == old.files.end() || (file.size && *file.size != it->second.size)) return false;
  std::error_code ec;
  if (fs::file_size(folder / file.name, ec) != it->second.size || ec) return false;
  // Small files have no listed hash: the same commit means the same bytes.
  return file.sha256.empty() ? old.commit == commit && !commit.empty()
                             : file.sha256 == it->second.sha256;
}

Status check_room(const fs::path& folder, uint64_t needed) {
  const auto room = room_in(folder);
  if (!room || needed <= *room) return ok_status();
  return full_disk("the model", folder, needed);
}

}  // namespace

Result<fs::path> pull_hub(const PullSpec& spec, const std::string& source, const fs::path& root) {
  PF_ASSIGN(const Hub hub, hub_from_environment());
  const std::string id = spec.owner + "/" + spec.name;
  PF_ASSIGN(const HubListing listing, fetch_listing(hub, spec, id));
  auto selected = select_files(listing, spec.file);
  if (!selected.ok()) return with_context(selected.status(), id);
  const Selection& selection = *selected;

  const fs::path folder = root / cache_folder(spec);
  PF_TRY(make_folders(folder));
  const auto old = read_manifest(folder);
  Manifest manifest;
  if (old.ok()) manifest = *old;
  uint64_t needed = 0;
  std::vector<HubFile> missing;
  for (const HubFile& file : selection.files) {
    if (already_there(folder, manifest, file, listing.commit)) continue;
    needed += file.size.value_or(0);
    missing.push_back(file);
  }
  PF_TRY(check_room(folder, needed));

  const std::string& at = listing.commit.empty() ? spec.revision : listing.commit;
  for (const HubFile& file : missing) {
    Download download;
    download.url = fmt::format("{}/{}/resolve/{}/{}", hub.endpoint, encode_path(id),
                               encode_path(at), encode_path(file.name));
    download.token = hub.token;
    download.target = folder / file.name;
    download.size = file.size;
    download.sha256 = file.sha256;
    download.label = file.name;
    download.version = file.sha256.empty() ? at.substr(0, 12) : file.sha256.substr(0, 12);
    PF_TRY(make_folders(download.target.parent_path()));
    PF_ASSIGN(const Downloaded done, download_file(download));
    manifest.files[file.name] = {done.size, done.sha256};
    log::info("{}: {} bytes, sha256 {}", file.name, done.size, done.sha256);
  }
  // A folder holds one commit's files; what an earlier commit had beside them is not of this model.
  if (manifest.commit != listing.commit) {
    std::map<std::string, CachedFile> kept;
    for (const HubFile& file : selection.files) kept[file.name] = manifest.files[file.name];
    manifest.files = std::move(kept);
  }
  manifest.source = source;
  manifest.commit = listing.commit;
  manifest.entry = selection.entry;
  PF_TRY(write_manifest(folder, manifest));
  return manifest.entry.empty() ? folder : folder / manifest.entry;
}

}  // namespace pagefold
