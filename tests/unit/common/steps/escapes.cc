#include "tests/unit/common/steps/escapes.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

namespace quench::steps {
namespace {

// The kernel's word; errno says why it is not 0 or a descriptor.
using Result = long;

Result Open(const std::string& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0600);
}

Result List(const std::string& path) {
  DIR* const folder = ::opendir(path.c_str());
  if (folder == nullptr) return -1;
  return ::closedir(folder);
}

Result Signal(const std::function<Result(pid_t)>& send, const std::string& process) {
  return send(static_cast<pid_t>(std::atoi(process.c_str())));
}

Result SendByDescriptor(pid_t process) {
  const long file = ::syscall(SYS_pidfd_open, process, 0);
  return file < 0 ? -1 : ::syscall(SYS_pidfd_send_signal, file, 0, nullptr, 0);
}

Result Queue(pid_t process) {
  siginfo_t info{};
  info.si_code = SI_QUEUE;
  return ::syscall(SYS_rt_sigqueueinfo, process, 0, &info);
}

// A signal of the kernel's to whom a descriptor belongs.
Result Own(pid_t process) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return -1;
  return ::fcntl(ends[0], F_SETOWN, process);
}

Result Fork(unsigned long flags) {
  const long child = ::syscall(SYS_clone, flags, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) ::_exit(0);
  if (child > 0) ::waitpid(static_cast<pid_t>(child), nullptr, 0);
  return child;
}

Result Clone3() {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  const long child = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (child == 0) ::_exit(0);
  if (child > 0) ::waitpid(static_cast<pid_t>(child), nullptr, 0);
  return child;
}

Result LimitsOf(pid_t process) {
  rlimit limit{};
  return ::syscall(SYS_prlimit64, process, RLIMIT_NOFILE, nullptr, &limit);
}

Result RaiseLimit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_max += 1;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result ReadMemoryOf(pid_t process) {
  char byte = 0;
  static const char here = 'x';
  const iovec into{&byte, 1}, from{const_cast<char*>(&here), 1};
  return ::process_vm_readv(process, &into, 1, &from, 1, 0);
}

Result ConnectTo(const std::string& path) {
  const int file = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file < 0) return -1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return ::connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

Result Ring() {
  io_uring_params parameters{};
  return ::syscall(SYS_io_uring_setup, 4, &parameters);
}

// Memory that no limit of address space counts, for it is written to as a file.
Result MemoryFile() { return ::memfd_create("memory", MFD_CLOEXEC); }

#if defined(__x86_64__)
// socket(AF_INET, SOCK_STREAM, 0)
Result SocketOfI386() {
  long result = 359;
  asm volatile("int $0x80" : "+a"(result) : "b"(2L), "c"(1L), "d"(0L) : "memory");
  return result;
}
Result SocketOfX32() { return ::syscall(0x40000000 | SYS_socket, AF_INET, SOCK_STREAM, 0); }
#endif

// A program, from a file that it has written itself.
Result Execute(const std::string& path) {
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0700);
  std::array<char, 1> name = {0};
  std::array<char*, 2> arguments = {name.data(), nullptr};
  const char script[] = "#!/bin/true\n";
  if (::write(file, script, sizeof script - 1) < 0) return -1;
  return ::syscall(SYS_execveat, file, "", arguments.data(), nullptr, AT_EMPTY_PATH);
}

Result Perf() {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_SOFTWARE;
  return ::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
}

// By a file that may be read, and by its path.
Result ChangeMode(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file >= 0 && ::fchmod(file, 0600) == 0) return 0;
  const int error = errno;
  if (::chmod(path.c_str(), 0600) == 0) return 0;
  if (file >= 0) errno = error;
  return -1;
}

Result ChangeTimes(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file >= 0 && ::futimens(file, nullptr) == 0) return 0;
  return ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

Result MountOver(const std::string& path) {
  return ::mount("none", path.c_str(), "tmpfs", 0, nullptr);
}

}  // namespace

std::string TryEscape(const std::string& name, const std::string& argument,
                      const std::string& scratch) {
  const std::string mine = scratch + "/mine";
  const auto to = [&](Result (*send)(pid_t)) { return Signal(send, argument); };
  const char* const path = argument.c_str();
  const std::map<std::string, std::function<Result()>> all = {
      {"read", [&] { return Open(argument, O_RDONLY); }},
      {"write", [&] { return Open(argument, O_WRONLY | O_CREAT); }},
      {"append", [&] { return Open(argument, O_WRONLY | O_APPEND); }},
      {"list", [&] { return List(argument); }},
      {"make", [&] { return ::mkdir(path, 0700); }},
      {"truncate", [&] { return ::truncate(path, 0); }},
      {"chmod", [&] { return ChangeMode(argument); }},
      {"chown", [&] { return ::chown(path, ::getuid(), ::getgid()); }},
      {"utime", [&] { return ChangeTimes(argument); }},
      {"setxattr", [&] { return ::setxattr(path, "user.x", "", 0, 0); }},
      {"unlink", [&] { return ::unlink(path); }},
      {"rename", [&] { return ::rename(path, mine.c_str()); }},
      {"link", [&] { return ::link(path, mine.c_str()); }},
      {"kill", [&] { return to([](pid_t process) -> Result { return ::kill(process, 0); }); }},
      {"killall", [] { return ::kill(-1, 0); }},
      {"tgkill",
       [&] {
         return to([](pid_t process) { return ::syscall(SYS_tgkill, process, process, 0); });
       }},
      {"pidfd", [&] { return to(SendByDescriptor); }},
      {"queue", [&] { return to(Queue); }},
      {"own", [&] { return to(Own); }},
      {"prlimit", [&] { return to(LimitsOf); }},
      {"raise", RaiseLimit},
      {"priority",
       [&] {
         return to([](pid_t process) -> Result {
           return ::setpriority(PRIO_PROCESS, static_cast<id_t>(process), 5);
         });
       }},
      {"ptrace",
       [&] {
         return to([](pid_t process) -> Result {
           return ::ptrace(PTRACE_SEIZE, process, nullptr, nullptr);
         });
       }},
      {"vmread", [&] { return to(ReadMemoryOf); }},
      {"fork", [] { return Fork(SIGCHLD); }},
      {"vfork", [] { return Fork(CLONE_VFORK | SIGCHLD); }},
      {"clone3", Clone3},
      {"namespace", [] { return Fork(CLONE_NEWUSER | SIGCHLD); }},
      {"unshare", [] { return ::unshare(CLONE_NEWUSER | CLONE_NEWNS); }},
      {"execute", [&] { return Execute(mine); }},
      {"memory-file", MemoryFile},
#if defined(__x86_64__)
      {"i386", SocketOfI386},
      {"x32", SocketOfX32},
#endif
      {"socket", [] { return ::socket(AF_INET, SOCK_STREAM, 0); }},
      {"connect", [&] { return ConnectTo(argument); }},
      {"netlink", [] { return ::socket(AF_NETLINK, SOCK_RAW, 0); }},
      {"ring", Ring},
      {"perf", Perf},
      {"bpf", [] { return ::syscall(SYS_bpf, 0, nullptr, 0); }},
      {"userfaultfd", [] { return ::syscall(SYS_userfaultfd, O_CLOEXEC); }},
      {"keys", [] { return ::syscall(SYS_keyctl, 0, -1, 0); }},
      {"mount", [&] { return MountOver(scratch); }},
      {"root", [&] { return ::chroot(scratch.c_str()); }},
      {"terminal", [] { return ::ioctl(0, TIOCSTI, "x"); }},
  };
  const auto found = all.find(name);
  if (found == all.end()) return "";
  errno = 0;
  return found->second() >= 0 ? "ok" : std::strerror(errno);
}

}  // namespace quench::steps
