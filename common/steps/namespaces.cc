#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/steps/sandbox.h"

namespace quench::steps {
namespace {

absl::Status Write(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  ::close(fd);
  return written ? absl::OkStatus() : ErrnoStatus(error, "write", path);
}

// The same user, and no other.
absl::Status MapUser(uid_t user, gid_t group) {
  QUENCH_RETURN_IF_ERROR(Write("/proc/self/setgroups", "deny"));
  QUENCH_RETURN_IF_ERROR(Write("/proc/self/uid_map", fmt::format("{0} {0} 1", user)));
  return Write("/proc/self/gid_map", fmt::format("{0} {0} 1", group));
}

// The first process of its namespace; when it ends, so do all. Signals from within pass it by, for it
// handles none.
[[noreturn]] void BeFirst() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close_range(0, ~0U, 0);
  (void)std::signal(SIGCHLD, SIG_IGN);
  for (;;) ::pause();
}

// Until the step has ended, or nobody wants it any more.
int Await(pid_t step) {
  const int ended = static_cast<int>(::syscall(SYS_pidfd_open, step, 0));
  int status = 0;
  while (ended >= 0) {
    pollfd fds[] = {{ended, POLLIN, 0}, {STDIN_FILENO, 0, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) break;
    if (fds[0].revents != 0) break;
    if ((fds[1].revents & (POLLHUP | POLLERR)) != 0) {
      ::kill(step, SIGKILL);
      break;
    }
  }
  while (::waitpid(step, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

[[noreturn]] void EndAs(int status) {
  if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
  (void)std::signal(WTERMSIG(status), SIG_DFL);
  (void)std::raise(WTERMSIG(status));
  ::_exit(1);
}

}  // namespace

absl::Status EnterNamespaces() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC) != 0) {
    return ErrnoStatus(errno, "make namespaces for", "the step");
  }
  QUENCH_RETURN_IF_ERROR(MapUser(user, group));
  const pid_t first = ::fork();
  if (first < 0) return ErrnoStatus(errno, "start", "the first process of a namespace");
  if (first == 0) BeFirst();
  const pid_t step = ::fork();
  if (step < 0) return ErrnoStatus(errno, "start", "the step");
  if (step == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return absl::OkStatus();
  }
  const int status = Await(step);
  ::kill(first, SIGKILL);  // ends once nothing remains behind it
  while (::waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
  }
  EndAs(status);
}

}  // namespace quench::steps
