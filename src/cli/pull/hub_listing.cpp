// What a hub's listing says and which of its files a model needs.
#include <algorithm>
#include <map>

#include "base/json.h"
#include "cli/pull/hub.h"
#include "cli/pull/json_size.h"

namespace pagefold {
namespace {

constexpr size_t kMaxFiles = 100'000;

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Result<HubFile> parse_file(const Json& item) {
  if (!item.is_object() || !item.contains("rfilename") || !item["rfilename"].is_string()) {
    return bad_data("the hub's listing: a file without 'rfilename'");
  }
  HubFile file;
  file.name = item["rfilename"].get<std::string>();
  if (!is_safe_relative_path(file.name)) {
    return bad_data("the hub's listing names a file that would leave its folder; refused");
  }
  file.size = json_size(item, "size");
  if (item.contains("lfs") && item["lfs"].is_object()) {
    const Json& lfs = item["lfs"];
    for (const char* key : {"sha256", "oid"}) {
      if (lfs.contains(key) && lfs[key].is_string()) file.sha256 = lfs[key].get<std::string>();
    }
    if (file.sha256.starts_with("sha256:")) file.sha256.erase(0, 7);
    if (!is_sha256(file.sha256)) return bad_data("{}: its listed hash is no sha256", file.name);
    if (const auto size = json_size(lfs, "size")) file.size = size;
  }
  return file;
}

bool is_folder_file(const std::string& name) {
  if (name.find('/') != std::string::npos || name.starts_with("consolidated")) return false;
  static const char* const kNames[] = {
      "config.json",
      "generation_config.json",
      "tokenizer.json",
      "tokenizer_config.json",
      "special_tokens_map.json",
      "added_tokens.json",
      "tokenizer.model",
      "vocab.json",
      "merges.txt",
      "chat_template.jinja",
      "chat_template.json",
      "model.safetensors.index.json",
  };
  return name.ends_with(".safetensors") ||
         std::any_of(std::begin(kNames), std::end(kNames), [&](auto* n) { return name == n; });
}

// "dir/name-00002-of-00005.gguf" -> "dir/name"; other names lose only ".gguf".
std::string gguf_group(const std::string& name) {
  std::string stem = name.substr(0, name.size() - 5);
  if (stem.size() > 15) {
    const std::string tail = stem.substr(stem.size() - 15);
    const bool split = tail[0] == '-' && tail.substr(6, 4) == "-of-" &&
                       tail.substr(1, 5).find_first_not_of("0123456789") == std::string::npos &&
                       tail.substr(10).find_first_not_of("0123456789") == std::string::npos;
    if (split) stem.resize(stem.size() - 15);
  }
  return stem;
}

Selection of_group(std::vector<HubFile> files) {
  std::sort(files.begin(), files.end(),
            [](const HubFile& a, const HubFile& b) { return a.name < b.name; });
  Selection selection;
  selection.entry = files.front().name;
  selection.files = std::move(files);
  return selection;
}

Result<Selection> select_gguf(const HubListing& listing, const std::string& wanted) {
  std::map<std::string, std::vector<HubFile>> groups;
  for (const HubFile& file : listing.files) {
    if (!file.name.ends_with(".gguf")) continue;
    if (file.name == wanted && gguf_group(file.name) + ".gguf" == file.name) {
      return of_group({file});
    }
    const bool projector = lower_case(file.name).find("mmproj") != std::string::npos;
    const bool named =
        file.name == wanted ||
        lower_case(gguf_group(file.name)).find(lower_case(wanted)) != std::string::npos;
    if (wanted.empty() ? !projector : named) groups[gguf_group(file.name)].push_back(file);
  }
  if (groups.size() == 1) return of_group(std::move(groups.begin()->second));
  if (groups.empty()) {
    if (wanted.empty()) return not_found("no .safetensors with a config.json and no .gguf in it");
    return not_found("no .gguf in it has '{}' in its name", wanted);
  }
  std::string names;
  for (const auto& [name, files] : groups) names += "\n  " + name + ".gguf";
  return bad_input(
      "several GGUF files; name one after a colon, as in OWNER/NAME:Q4_K_M. There are:{}", names);
}

}  // namespace

Result<HubListing> parse_listing(std::string_view json) {
  PF_ASSIGN(const Json root, parse_json(json, 32));
  if (!root.is_object() || !root.contains("siblings") || !root["siblings"].is_array()) {
    return bad_data("the hub's listing has no 'siblings'");
  }
  if (root["siblings"].size() > kMaxFiles) return bad_data("the hub's listing is too long");
  HubListing listing;
  if (root.contains("sha") && root["sha"].is_string())
    listing.commit = root["sha"].get<std::string>();
  const bool hex = listing.commit.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hex || listing.commit.size() > 64) return bad_data("the hub's listing: 'sha' is no commit");
  for (const Json& item : root["siblings"]) {
    PF_ASSIGN(HubFile file, parse_file(item));
    listing.files.push_back(std::move(file));
  }
  return listing;
}

Result<Selection> select_files(const HubListing& listing, const std::string& wanted) {
  if (!wanted.empty()) return select_gguf(listing, wanted);
  Selection folder;
  bool config = false, weights = false;
  for (const HubFile& file : listing.files) {
    if (!is_folder_file(file.name)) continue;
    config |= file.name == "config.json";
    weights |= file.name.ends_with(".safetensors");
    folder.files.push_back(file);
  }
  if (config && weights) return folder;
  return select_gguf(listing, "");
}

}  // namespace pagefold
