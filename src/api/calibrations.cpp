#include "api/calibrations.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/cache_folder.h"
#include "base/file.h"
#include "base/log.h"
#include "formats/weights_key.h"
#include "kv/calibration.h"

namespace pagefold {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxBytes = 256 << 20;
constexpr std::string_view kEnding = ".calibration";
using Registry = std::map<std::string, std::shared_ptr<const CalibrationStats>, std::less<>>;

Status add(const CalibrationFile& file, const KvModel& model, Registry& all) {
  auto stats = read_calibration(file.bytes);
  if (!stats.ok()) return with_context(stats.status(), file.path.string());
  const Status fits = check_calibration(*stats, model);
  if (!fits.ok()) return with_context(fits, file.path.string());
  all[file.name] = std::make_shared<const CalibrationStats>(*std::move(stats));
  return ok_status();
}

// Names in the cache folder that --kv-calibration NAME finds; keys of weights are none.
std::vector<std::string> kept_names(const fs::path& folder) {
  constexpr size_t kMostShown = 20, kKeyDigits = 16;
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string stem = it->path().stem().string();
    const bool key = stem.size() == kKeyDigits &&
                     stem.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (it->path().extension() == kEnding && !key) names.push_back(stem);
  }
  std::sort(names.begin(), names.end());
  if (names.size() > kMostShown) names.resize(kMostShown);
  return names;
}

// A file that was asked for: what is wrong with it is wrong use, whatever read it.
Status refused(const std::string& entry, const Status& why) {
  std::string there = "none is there";
  std::string folder = "the cache folder";
  if (const auto cache = calibration_cache(); cache.ok()) {
    folder = cache->string();
    const std::vector<std::string> names = kept_names(*cache);
    if (!names.empty()) there = fmt::format("there: {}", fmt::join(names, ", "));
  }
  return bad_input(
      "--kv-calibration {}: {}; it takes NAME=PATH, PATH written by `pagefold calibrate MODEL -o "
      "PATH` for this model, or the NAME of one kept in {} ({}); requests then say "
      "kv.calibration NAME, auto or self",
      entry, message_of(why), folder, there);
}

bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"
                              "WXYZ0123456789-_") == std::string_view::npos;
}

// auto and self are not names: they mean something else in a request.
bool is_free_name(std::string_view text) {
  return is_name(text) && text != "auto" && text != "self";
}

// "NAME=PATH", or NAME of the cache folder.
Result<std::pair<std::string, fs::path>> named_file(const std::string& entry) {
  const size_t equals = entry.find('=');
  const std::string name = entry.substr(0, equals);
  if (!is_free_name(name)) {
    return refused(entry,
                   bad_input("a NAME has letters, digits, - and _ alone, and is not auto or self"));
  }
  if (equals != std::string::npos) return std::pair(name, fs::path(entry.substr(equals + 1)));
  PF_ASSIGN(const fs::path folder, calibration_cache());
  return std::pair(name, folder / (name + std::string(kEnding)));
}

// The file beside the model, else the one kept under the key of its weights.
std::optional<fs::path> own_file(const ModelFiles& files) {
  std::error_code ec;
  fs::path beside = files.path;
  if (files.gguf) {
    beside += kEnding;
  } else {
    beside /= "triattention.calibration";
  }
  if (fs::exists(beside, ec)) return beside;
  const auto folder = calibration_cache();
  if (!folder.ok() || !fs::is_directory(*folder, ec)) return std::nullopt;  // nothing to look up
  const fs::path kept = *folder / (weights_key(files.tensors()) + std::string(kEnding));
  if (fs::exists(kept, ec)) return kept;
  return std::nullopt;
}

}  // namespace

Result<std::vector<CalibrationFile>> read_calibration_files(const EngineOptions& options,
                                                            const ModelFiles& files) {
  std::vector<CalibrationFile> all;
  for (const std::string& entry : options.kv_calibrations) {
    PF_ASSIGN(const auto named, named_file(entry));
    auto bytes = read_file(named.second, kMaxBytes);
    if (!bytes.ok()) return refused(entry, bytes.status());
    all.push_back({named.first, entry, named.second, *std::move(bytes)});
  }
  if (const auto own = own_file(files)) {
    PF_ASSIGN(std::string bytes, read_file(*own, kMaxBytes));
    all.push_back({"auto", "", *own, std::move(bytes)});
  }
  return all;
}

Status register_calibrations(const EngineOptions& options, const ModelFiles& files,
                             const KvModel& model, EngineConfig& config) {
  auto all = std::make_shared<Registry>();
  PF_ASSIGN(const std::vector<CalibrationFile> read, read_calibration_files(options, files));
  for (const CalibrationFile& file : read) {
    const Status added = add(file, model, *all);
    if (file.entry.empty()) {
      PF_TRY(added);
      log::info("triattention: calibration=auto is {}", file.path.string());
      continue;
    }
    if (!added.ok()) return refused(file.entry, added);
    config.calibration_names += config.calibration_names.empty() ? "" : ", ";
    config.calibration_names += file.name;
  }
  config.find_calibration =
      [all](std::string_view name) -> std::shared_ptr<const CalibrationStats> {
    const auto it = all->find(name);
    return it == all->end() ? nullptr : it->second;
  };
  return ok_status();
}

Result<fs::path> calibration_output(const std::string& output, const ModelFiles& files) {
  if (!output.empty() && !is_name(output)) return fs::path(output);
  if (!output.empty() && !is_free_name(output)) {
    return bad_input("-o {}: auto and self cannot be names; leave -o out for calibration=auto",
                     output);
  }
  PF_ASSIGN(const fs::path folder, calibration_cache());
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) return io_error("{}: {}", folder.string(), ec.message());
  const std::string stem = output.empty() ? weights_key(files.tensors()) : output;
  return folder / (stem + std::string(kEnding));
}

}  // namespace pagefold
