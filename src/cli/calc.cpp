// `pagefold calc`: the memory of a cache before anything is started.
#include <filesystem>

#include "base/json.h"
#include "calc/presets.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pull/cache.h"

namespace pagefold {
namespace {

// Files and presets are taken as they are; other names are those of pulled models, and none at all
// is the default model.
Status resolve_name(CalcRequest& request) {
  if (!request.config_json.empty() || (request.model.empty() && request.shape.any())) {
    return ok_status();
  }
  std::error_code ec;
  if (!request.model.empty() &&
      (std::filesystem::exists(request.model, ec) || calc::find_preset(request.model) != nullptr)) {
    return ok_status();
  }
  auto path = resolve_model(request.model);
  if (path.ok()) {
    request.model = *path;
    return ok_status();
  }
  if (request.model.empty()) return path.status();
  return bad_input(
      "{}: no file, no folder, no pulled model and no preset; `pagefold calc "
      "--presets` lists the presets",
      request.model.substr(0, 200));
}

Status list_presets(bool json) {
  Json names = Json::array();
  std::string text;
  for (const std::string& name : calc_presets()) {
    names.push_back(name);
    text += name + "\n";
  }
  print_text(stdout, json ? dump_json({{"presets", names}}) + "\n" : text);
  return ok_status();
}

Status answer(const CalcCommand& command) {
  if (command.presets) return list_presets(command.json);
  CalcRequest request = command.request;
  PF_TRY(resolve_name(request));
  PF_ASSIGN(const CalcResult result, calculate(request));
  print_text(stdout,
             command.json ? calc_result_to_json(result) + "\n" : calc_result_to_text(result));
  return ok_status();
}

}  // namespace

int run_calc(const CalcCommand& command) {
  Status done = answer(command);
  if (done.ok() && !stdout_ok()) done = io_error("standard output does not take the answer");
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
