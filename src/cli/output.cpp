#include "cli/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/command.h"

namespace pagefold {
namespace {

// Both ends of a message that quotes what a file or a flag holds, however long that is.
std::string shortened(const std::string& message) {
  constexpr size_t kMost = 2000, kEnd = 500;
  if (message.size() <= kMost) return message;
  return fmt::format("{} ... [{} bytes] ... {}", message.substr(0, kMost - kEnd),
                     message.size() - kMost, message.substr(message.size() - kEnd));
}

}  // namespace

int report(const Status& status) {
  std::fflush(stdout);
  const std::string line = fmt::format("pagefold: error: {}\n", shortened(message_of(status)));
  print_text(stderr, line);  // names of files and words of files are in it
  return absl::IsInvalidArgument(status) ? kWrongUse : kFailed;
}

std::string without_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = c == 0xC2 && i + 1 < text.size() &&
                    static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                    static_cast<unsigned char>(text[i + 1]) <= 0x9F;
    if (c1) {
      ++i;
    } else if ((c >= 32 && c != 127) || c == '\n' || c == '\t') {
      out += text[i];
    }
  }
  return out;
}

void print_text(std::FILE* out, std::string_view text) {
  if (::isatty(::fileno(out)) == 1) {
    const std::string clean = without_controls(text);
    std::fwrite(clean.data(), 1, clean.size(), out);
  } else {
    std::fwrite(text.data(), 1, text.size(), out);
  }
  std::fflush(out);
}

Status check_writable(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) {
    return bad_input("{}: is a folder, not a file", path);
  }
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return io_error("{}: {}", path, std::strerror(errno));
  ::close(fd);
  ::unlink(temporary.c_str());
  return ok_status();
}

bool stdout_ok() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

}  // namespace pagefold
