#include "cli/pull/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/check.h"

extern char** environ;

namespace pagefold {
namespace {

constexpr size_t kMostHeld = 64 << 10;

struct Pipe {
  int read = -1, write = -1;
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  static void close_end(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
};

// Our environment with another TMPDIR.
std::vector<std::string> environment(const std::string& folder) {
  std::vector<std::string> out = {"TMPDIR=" + folder};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("TMPDIR=")) out.emplace_back(*entry);
  }
  return out;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

bool is_warning(std::string_view line) {
  return line.starts_with("WARNING") || line.starts_with("DEPRECATION");
}

// Until the program and its children have closed the other end.
void read_errors(int fd, std::string& held) {
  std::string line;
  const auto end_line = [&] {
    if (is_warning(line)) {
      std::fwrite(line.data(), 1, line.size(), stderr);
    } else {
      held += line;
      if (held.size() > kMostHeld) held.erase(0, held.size() - kMostHeld);
    }
    line.clear();
  };
  char buffer[4096];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    for (const char c : std::string_view(buffer, static_cast<size_t>(n))) {
      line += c;
      if (c == '\n' || line.size() >= kMostHeld) end_line();
    }
  }
  end_line();
}

}  // namespace

Status run_program(const std::vector<std::string>& argv, const std::string& folder,
                   std::string& errors) {
  PF_CHECK(!argv.empty());
  Pipe pipe;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return io_error("pipe: {}", std::strerror(errno));
  pipe.read = ends[0];
  pipe.write = ends[1];
  const std::vector<std::string> variables = environment(folder);
  const std::vector<char*> args = pointers(argv), env = pointers(variables);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);  // stdout belongs to our own answer
  posix_spawn_file_actions_adddup2(&actions, pipe.write, 2);
  pid_t pid = 0;
  const int rc = ::posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  if (rc != 0) return io_error("cannot run {}: {}", argv[0], std::strerror(rc));
  Pipe::close_end(pipe.write);
  read_errors(pipe.read, errors);

  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return io_error("waiting for {}: {}", argv[0], std::strerror(errno));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ok_status();
  if (WIFSIGNALED(status)) return io_error("{} was ended by signal {}", argv[0], WTERMSIG(status));
  return io_error("{} ended with exit code {}", argv[0], WEXITSTATUS(status));
}

std::string last_error(const std::string& errors) {
  constexpr std::string_view kError = "ERROR: ";
  std::string_view last, said;
  std::string_view rest = errors;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    last = line;
    if (line.starts_with(kError)) said = line.substr(kError.size());
  }
  return std::string(said.empty() ? last : said);
}

}  // namespace pagefold
