#include "cli/pull/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

extern char** environ;

namespace pagefold {

Status run_program(const std::vector<std::string>& argv) {
  PF_CHECK(!argv.empty());
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);  // stdout belongs to our own answer
  pid_t pid = 0;
  const int rc = ::posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (rc != 0) return io_error("cannot run {}: {}", argv[0], std::strerror(rc));

  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return io_error("waiting for {}: {}", argv[0], std::strerror(errno));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ok_status();
  if (WIFSIGNALED(status)) return io_error("{} was ended by signal {}", argv[0], WTERMSIG(status));
  return io_error("{} ended with exit code {}", argv[0], WEXITSTATUS(status));
}

}  // namespace pagefold
