#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace pagefold::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  // Leaked on purpose: threads that outlive main may still log.
  static auto* instance = [] {
    auto* l =
        new spdlog::logger("pagefold", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    l->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-5l%$ %v");
    l->flush_on(spdlog::level::debug);
    return l;
  }();
  return *instance;
}

}  // namespace

void write(Level level, std::string_view line) {
  logger().log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}
void set_level(Level level) { logger().set_level(to_spdlog(level)); }
bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }

Result<Level> parse_level(std::string_view word) {
  if (word == "debug") return Level::debug;
  if (word == "info") return Level::info;
  if (word == "warning" || word == "warn") return Level::warn;
  if (word == "error") return Level::error;
  if (word == "off") return Level::off;
  return bad_input("unknown log level '{}': use debug, info, warning, error or off", word);
}

}  // namespace pagefold::log
