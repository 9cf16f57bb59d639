#include "cli/interrupt.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#include "base/check.h"

namespace pagefold {
namespace {

sigset_t interrupt_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

InterruptWatcher::InterruptWatcher() {
  const sigset_t set = interrupt_set();
  PF_CHECK(::pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signal_fd_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  PF_CHECK(signal_fd_ >= 0 && stop_fd_ >= 0, "no file descriptors left");
  thread_ = std::thread([this] { watch(); });
}

InterruptWatcher::~InterruptWatcher() {
  const uint64_t one = 1;
  PF_CHECK(::write(stop_fd_, &one, sizeof one) == sizeof one);
  thread_.join();
  ::close(signal_fd_);
  ::close(stop_fd_);
  const sigset_t set = interrupt_set();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void InterruptWatcher::set(std::function<void()> on_interrupt) {
  const std::lock_guard lock(mutex_);
  on_interrupt_ = std::move(on_interrupt);
}

void InterruptWatcher::watch() {
  while (true) {
    pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (fds[1].revents) return;
    signalfd_siginfo info;
    if (fds[0].revents && ::read(signal_fd_, &info, sizeof info) == sizeof info) {
      const std::lock_guard lock(mutex_);
      if (on_interrupt_) on_interrupt_();
    }
  }
}

}  // namespace pagefold
