#include "api/calibrations.h"

#include <filesystem>
#include <map>
#include <memory>

#include "api/calibration.h"
#include "base/file.h"
#include "kv/calibration.h"

namespace pagefold {
namespace {

constexpr size_t kMaxBytes = 256 << 20;
using Registry = std::map<std::string, std::shared_ptr<const CalibrationStats>, std::less<>>;

Status add(const std::string& name, const std::filesystem::path& path, const KvModel& model,
           Registry& all) {
  PF_ASSIGN(const std::string bytes, read_file(path, kMaxBytes));
  auto stats = read_calibration(bytes);
  if (!stats.ok()) return with_context(stats.status(), path.string());
  const Status fits = check_calibration(*stats, model);
  if (!fits.ok()) return with_context(fits, path.string());
  all[name] = std::make_shared<const CalibrationStats>(*std::move(stats));
  return ok_status();
}

std::filesystem::path own_file(const std::string& model) {
  std::error_code ec;
  if (std::filesystem::is_directory(model, ec))
    return std::filesystem::path(model) / "triattention.calibration";
  return model + ".calibration";
}

}  // namespace

Status register_calibrations(const EngineOptions& options, const ModelShape& shape,
                             EngineConfig& config) {
  const KvModel kv = kv_model_of(shape, options.block_size);
  auto all = std::make_shared<Registry>();
  for (const std::string& entry : options.kv_calibrations) {
    const size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    if (equals == std::string::npos || name.empty() || name == "auto" || name == "self") {
      return bad_input(
          "--kv-calibration: '{}' must be NAME=PATH, with a name other than auto and self", entry);
    }
    PF_TRY(add(name, entry.substr(equals + 1), kv, *all));
  }
  std::error_code ec;
  const std::filesystem::path own = own_file(options.model);
  if (std::filesystem::exists(own, ec)) PF_TRY(add("auto", own, kv, *all));
  for (const auto& [name, stats] : *all) {
    if (name == "auto") continue;
    config.calibration_names += config.calibration_names.empty() ? "" : ", ";
    config.calibration_names += name;
  }
  config.find_calibration =
      [all](std::string_view name) -> std::shared_ptr<const CalibrationStats> {
    const auto it = all->find(name);
    return it == all->end() ? nullptr : it->second;
  };
  return ok_status();
}

}  // namespace pagefold
