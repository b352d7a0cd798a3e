// seccomp: which system calls.
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/steps/sandbox_internal.h"

namespace quench::steps {
namespace {

// Calls whose arguments do not matter: they reach only this process, or a file that Landlock has
// let it open. Calls that act on files by their path without opening them (truncate, chmod, chown,
// utime, setxattr) or on files that it may only read (fchmod, futimens) are not among them, nor is
// anything that names a process.
constexpr std::array kAllowed = {
    // memory
    SCMP_SYS(brk), SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mprotect), SCMP_SYS(mremap),
    SCMP_SYS(madvise), SCMP_SYS(mincore), SCMP_SYS(msync), SCMP_SYS(mlock), SCMP_SYS(munlock),
    SCMP_SYS(membarrier), SCMP_SYS(pkey_alloc), SCMP_SYS(pkey_mprotect),
    // threads
    SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(set_tid_address), SCMP_SYS(futex),
    SCMP_SYS(sched_yield), SCMP_SYS(sched_get_priority_min), SCMP_SYS(sched_get_priority_max),
    SCMP_SYS(gettid), SCMP_SYS(getcpu), SCMP_SYS(arch_prctl), SCMP_SYS(exit), SCMP_SYS(exit_group),
    SCMP_SYS(restart_syscall),
    // handling signals
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack),
    SCMP_SYS(sigreturn), SCMP_SYS(rt_sigtimedwait), SCMP_SYS(rt_sigpending),
    // open files
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(pread64), SCMP_SYS(pwrite64), SCMP_SYS(readv),
    SCMP_SYS(writev), SCMP_SYS(preadv), SCMP_SYS(pwritev), SCMP_SYS(preadv2), SCMP_SYS(pwritev2),
    SCMP_SYS(lseek), SCMP_SYS(_llseek), SCMP_SYS(close), SCMP_SYS(close_range), SCMP_SYS(dup),
    SCMP_SYS(dup2), SCMP_SYS(dup3), SCMP_SYS(fstat), SCMP_SYS(fstat64), SCMP_SYS(fstatfs),
    SCMP_SYS(fstatfs64), SCMP_SYS(getdents64), SCMP_SYS(ftruncate), SCMP_SYS(ftruncate64),
    SCMP_SYS(fsync), SCMP_SYS(fdatasync), SCMP_SYS(sync_file_range), SCMP_SYS(fadvise64),
    SCMP_SYS(readahead), SCMP_SYS(copy_file_range), SCMP_SYS(sendfile), SCMP_SYS(flock),
    SCMP_SYS(pipe), SCMP_SYS(pipe2), SCMP_SYS(eventfd2), SCMP_SYS(poll), SCMP_SYS(ppoll),
    SCMP_SYS(select), SCMP_SYS(pselect6), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait),
    // files by path
    SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(openat2), SCMP_SYS(creat), SCMP_SYS(stat),
    SCMP_SYS(lstat), SCMP_SYS(newfstatat), SCMP_SYS(stat64), SCMP_SYS(lstat64), SCMP_SYS(fstatat64),
    SCMP_SYS(statx), SCMP_SYS(statfs), SCMP_SYS(statfs64), SCMP_SYS(access), SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getcwd),
    SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir), SCMP_SYS(unlink), SCMP_SYS(unlinkat),
    SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(symlink),
    SCMP_SYS(symlinkat),
    // the time, and waiting
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(clock_nanosleep),
    SCMP_SYS(clock_gettime64), SCMP_SYS(clock_nanosleep_time64), SCMP_SYS(futex_time64),
    SCMP_SYS(nanosleep), SCMP_SYS(setitimer), SCMP_SYS(gettimeofday), SCMP_SYS(time),
    SCMP_SYS(times),
    // what the machine and this process are
    SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid),
    SCMP_SYS(getegid), SCMP_SYS(getrusage), SCMP_SYS(getrlimit), SCMP_SYS(setrlimit),
    SCMP_SYS(ugetrlimit), SCMP_SYS(sysinfo), SCMP_SYS(uname), SCMP_SYS(getrandom), SCMP_SYS(umask),
    // walls around less
    SCMP_SYS(landlock_create_ruleset), SCMP_SYS(landlock_add_rule),
    SCMP_SYS(landlock_restrict_self), SCMP_SYS(seccomp), SCMP_SYS(capset)};

constexpr std::array kOfControl = {
    PR_SET_NAME,    PR_GET_NAME,      PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_GET_SECCOMP,
    PR_SET_SECCOMP, PR_SET_PDEATHSIG, 0x53564d41 /* PR_SET_VMA: names of mappings */};

// Not those that send signals to whom they name (F_SETOWN, F_SETSIG).
constexpr std::array kOfDescriptors = {F_DUPFD,     F_DUPFD_CLOEXEC, F_GETFD,     F_SETFD,
                                       F_GETFL,     F_SETFL,         F_GETLK,     F_SETLK,
                                       F_SETLKW,    F_OFD_GETLK,     F_OFD_SETLK, F_OFD_SETLKW,
                                       F_ADD_SEALS, F_GET_SEALS,     F_GETPIPE_SZ};

// A terminal's size, whether it is one, and copies that share their blocks.
constexpr std::array<unsigned long, 5> kOfDevices = {TCGETS, TIOCGWINSZ, FIONREAD, FICLONE,
                                                     FICLONERANGE};

constexpr uint64_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

// The sanitizers look around in their own process; of calls that is this much.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

class Filter {
 public:
  // EPERM says to libraries that they must do without.
  Filter() : filter_(seccomp_init(SCMP_ACT_ERRNO(EPERM)), seccomp_release) {}

  void Allow(int call) { Add(SCMP_ACT_ALLOW, call, 0, {}); }
  template <typename... Compare>
  void AllowIf(int call, const Compare&... compare) {
    const std::array<scmp_arg_cmp, sizeof...(compare)> all = {compare...};
    Note(seccomp_rule_add_array(filter_.get(), SCMP_ACT_ALLOW, call, all.size(), all.data()));
  }
  // As of a kernel that has never heard of it, or a file system that cannot: libraries have another way.
  void Deny(int call, uint32_t error) {
    Note(seccomp_rule_add(filter_.get(), SCMP_ACT_ERRNO(error), call, 0));
  }

  absl::Status Load() {
    if (filter_ == nullptr) return Internal("the filter of system calls cannot be made");
    // Calls by the numbers of another architecture. A thread alone would leave a process that does nothing.
    Note(seccomp_attr_set(filter_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS));
    // Threads that there are already too.
    Note(seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_TSYNC, 1));
    Note(seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2));
    if (error_ == 0) Note(seccomp_load(filter_.get()));
    return error_ == 0 ? absl::OkStatus() : ErrnoStatus(-error_, "filter", "system calls");
  }

 private:
  void Add(uint32_t action, int call, unsigned count, const scmp_arg_cmp* compare) {
    Note(seccomp_rule_add_array(filter_.get(), action, call, count, compare));
  }
  void Note(int error) {
    if (error_ == 0 && error < 0) error_ = error;
  }

  const std::unique_ptr<void, void (*)(void*)> filter_;
  int error_ = 0;
};

// A call's argument, by its number, of 32 bits.
scmp_arg_cmp Equals(unsigned argument, uint32_t value) { return {argument, SCMP_CMP_EQ, value, 0}; }

void AllowByArgument(Filter& filter) {
  for (const int operation : kOfControl) {
    filter.AllowIf(SCMP_SYS(prctl), Equals(0, static_cast<uint32_t>(operation)));
  }
  for (const int command : kOfDescriptors) {
    for (const int call : {SCMP_SYS(fcntl), SCMP_SYS(fcntl64)}) {
      filter.AllowIf(call, Equals(1, static_cast<uint32_t>(command)));
    }
  }
  for (const unsigned long request : kOfDevices) {
    filter.AllowIf(SCMP_SYS(ioctl), Equals(1, static_cast<uint32_t>(request)));
  }
  // Only for the process itself: as process 0, or by its number.
  const auto self = static_cast<uint32_t>(::getpid());
  filter.AllowIf(SCMP_SYS(tgkill), Equals(0, self));
  filter.AllowIf(SCMP_SYS(prlimit64), Equals(0, 0));
  filter.Allow(SCMP_SYS(sched_getaffinity));  // of any, read only: threads are named by number
}

// Requests to NVIDIA's devices: `F` and a number, or, to nvidia-uvm, a number alone; nvmap has `N`,
// nvhost `H`, `G` and `A`. Requests to terminals, which send keys to others, have `T`.
void AllowGpus(Filter& filter) {
  constexpr uint64_t kType = 0xff00, kTypeAndSize = 0xffffff00;
  constexpr std::array kTypes = {'F', 'N', 'H', 'G', 'A'};
  for (const char type : kTypes) {
    const auto datum = static_cast<uint64_t>(type) << 8;
    filter.AllowIf(SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_MASKED_EQ, kType, datum));
  }
  filter.AllowIf(SCMP_SYS(ioctl), SCMP_A1_64(SCMP_CMP_MASKED_EQ, kTypeAndSize, 0));
  constexpr uint32_t kUvmInitialize = 0x30000001, kUvmDeinitialize = 0x30000002;
  for (const uint32_t request : {kUvmInitialize, kUvmDeinitialize})
    filter.AllowIf(SCMP_SYS(ioctl), Equals(1, request));
  for (const int call : {SCMP_SYS(get_mempolicy), SCMP_SYS(mbind), SCMP_SYS(set_mempolicy)})
    filter.Allow(call);  // of its own memory
}

void AllowClone(Filter& filter, bool starts_processes) {
  // Its arguments lie in memory, where no filter can look: the C library falls back to clone.
  filter.Deny(SCMP_SYS(clone3), ENOSYS);
  if (!starts_processes) {
    const uint64_t mask = CLONE_THREAD | kNewNamespaces;
    filter.AllowIf(SCMP_SYS(clone), SCMP_A0_64(SCMP_CMP_MASKED_EQ, mask, CLONE_THREAD));
    return;
  }
  filter.AllowIf(SCMP_SYS(clone), SCMP_A0_64(SCMP_CMP_MASKED_EQ, kNewNamespaces, 0));
  filter.Allow(SCMP_SYS(wait4));
}

}  // namespace

bool HasCallFilter() { return ::prctl(PR_GET_SECCOMP) >= 0; }

absl::Status RestrictCalls(bool starts_processes, bool gpus) {
  Filter filter;
  for (const int call : kAllowed) filter.Allow(call);
  AllowByArgument(filter);
  if (gpus) AllowGpus(filter);
  // Bytes written into it do not count as address space.
  filter.Deny(SCMP_SYS(memfd_create), ENOSYS);
  // Beyond the end of a file it takes blocks that no limit counts, and all of a disk in no time.
  filter.Deny(SCMP_SYS(fallocate), EOPNOTSUPP);
  AllowClone(filter, starts_processes);
  if (kIsSanitized) {
    for (const int call : {SCMP_SYS(personality), SCMP_SYS(getdents)}) filter.Allow(call);
  }
  return filter.Load();
}

}  // namespace quench::steps
