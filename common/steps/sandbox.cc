#include "common/steps/sandbox.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::steps {
namespace {

constexpr uint64_t kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
// All of the first version of Landlock; renames across folders (version 2) stay refused.
constexpr uint64_t kAll =
    kRead | LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
    LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
    LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
    LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
constexpr uint64_t kWrite =
    kAll & ~uint64_t{LANDLOCK_ACCESS_FS_EXECUTE} & ~uint64_t{LANDLOCK_ACCESS_FS_MAKE_CHAR} &
    ~uint64_t{LANDLOCK_ACCESS_FS_MAKE_BLOCK} & ~uint64_t{LANDLOCK_ACCESS_FS_MAKE_SOCK};

int LandlockVersion() {
  return static_cast<int>(
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION));
}

class Ruleset {
 public:
  explicit Ruleset(int version) {
    landlock_ruleset_attr attributes{};
    // Moving a finished blob out of `tmp/` is a rename across folders: allowed from version 2 on,
    // and there it has to be handled to be granted.
    extra_ = version >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0;
    attributes.handled_access_fs = kAll | extra_;
    fd_ =
        static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0));
  }
  ~Ruleset() {
    if (fd_ >= 0) ::close(fd_);
  }
  Ruleset(const Ruleset&) = delete;
  Ruleset& operator=(const Ruleset&) = delete;

  // A path that does not exist needs no rule.
  absl::Status Allow(const std::filesystem::path& path, uint64_t access) {
    landlock_path_beneath_attr rule{};
    rule.allowed_access = access == kWrite ? access | extra_ : access;
    rule.parent_fd = ::open(path.c_str(), O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0 && errno == ENOENT) return absl::OkStatus();
    if (rule.parent_fd < 0) return ErrnoStatus(errno, "open", path);
    const long result = ::syscall(SYS_landlock_add_rule, fd_, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    const int error = errno;
    ::close(rule.parent_fd);
    return result == 0 ? absl::OkStatus() : ErrnoStatus(error, "restrict access to", path);
  }

  absl::Status Enter() const {
    if (::syscall(SYS_landlock_restrict_self, fd_, 0) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, "enter", "the sandbox");
  }

 private:
  int fd_ = -1;
  uint64_t extra_ = 0;
};

absl::Status RestrictFiles(const std::filesystem::path& blobs,
                           const std::filesystem::path& scratch) {
  const int version = LandlockVersion();
  // Renames across folders cannot be granted before version 2, and blobs need them.
  if (version < 2) return absl::OkStatus();
  Ruleset rules(version);
  for (const char* folder : {"/usr", "/lib", "/lib64", "/etc", "/proc", "/sys"}) {
    QUENCH_RETURN_IF_ERROR(rules.Allow(folder, kRead));
  }
  QUENCH_RETURN_IF_ERROR(
      rules.Allow("/dev/null", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE));
  QUENCH_RETURN_IF_ERROR(rules.Allow("/dev/urandom", LANDLOCK_ACCESS_FS_READ_FILE));
  QUENCH_RETURN_IF_ERROR(rules.Allow(blobs, kWrite));
  QUENCH_RETURN_IF_ERROR(rules.Allow(scratch, kWrite));
  return rules.Enter();
}

// What no step needs, and what would lead out of the process.
constexpr std::array kRefused = {SCMP_SYS(execve),
                                 SCMP_SYS(execveat),
                                 SCMP_SYS(fork),
                                 SCMP_SYS(vfork),
                                 SCMP_SYS(ptrace),
                                 SCMP_SYS(process_vm_readv),
                                 SCMP_SYS(process_vm_writev),
                                 SCMP_SYS(pidfd_getfd),
                                 SCMP_SYS(socket),
                                 SCMP_SYS(socketpair),
                                 SCMP_SYS(connect),
                                 SCMP_SYS(bind),
                                 SCMP_SYS(listen),
                                 SCMP_SYS(accept),
                                 SCMP_SYS(accept4),
                                 SCMP_SYS(io_uring_setup),
                                 SCMP_SYS(bpf),
                                 SCMP_SYS(perf_event_open),
                                 SCMP_SYS(userfaultfd),
                                 SCMP_SYS(mount),
                                 SCMP_SYS(umount2),
                                 SCMP_SYS(move_mount),
                                 SCMP_SYS(open_tree),
                                 SCMP_SYS(pivot_root),
                                 SCMP_SYS(chroot),
                                 SCMP_SYS(unshare),
                                 SCMP_SYS(setns),
                                 SCMP_SYS(keyctl),
                                 SCMP_SYS(add_key),
                                 SCMP_SYS(request_key),
                                 SCMP_SYS(init_module),
                                 SCMP_SYS(finit_module),
                                 SCMP_SYS(kexec_load),
                                 SCMP_SYS(setuid),
                                 SCMP_SYS(setgid),
                                 SCMP_SYS(setreuid),
                                 SCMP_SYS(setresuid)};

absl::Status RestrictCalls() {
  // 2: the kernel filters system calls by program; without that there is nothing to enter.
  if (::prctl(PR_GET_SECCOMP) != 0) return absl::OkStatus();
  const std::unique_ptr<void, void (*)(void*)> filter(seccomp_init(SCMP_ACT_ALLOW),
                                                      seccomp_release);
  if (filter == nullptr) return Internal("the filter of system calls cannot be made");
  for (const int call : kRefused) {
    const int error = seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), call, 0);
    if (error != 0) return ErrnoStatus(-error, "filter", "system calls");
  }
  const int error = seccomp_load(filter.get());
  if (error == 0 || error == -EINVAL || error == -ENOSYS) return absl::OkStatus();
  return ErrnoStatus(-error, "filter", "system calls");
}

}  // namespace

absl::Status EnterSandbox(const std::filesystem::path& blobs,
                          const std::filesystem::path& scratch) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return ErrnoStatus(errno, "give up rights for", "the step");
  }
  QUENCH_RETURN_IF_ERROR(RestrictFiles(blobs, scratch));
  return RestrictCalls();
}

std::string SandboxSupport() {
  const int landlock = LandlockVersion();
  return fmt::format("seccomp {}, Landlock {}", ::prctl(PR_GET_SECCOMP) < 0 ? "missing" : "on",
                     landlock < 2 ? "missing" : fmt::format("on (version {})", landlock));
}

}  // namespace quench::steps
