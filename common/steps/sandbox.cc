#include "common/steps/sandbox.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/steps/sandbox_internal.h"

namespace quench::steps {
namespace {

constexpr int kLeastLandlock = 2;  // renames across folders

// A service that runs as root has rights that pass by its files' permissions, and raise its limits.
absl::Status DropCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
  if (::syscall(SYS_capset, &header, none.data()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "give up capabilities for", "the step");
}

}  // namespace

unsigned WallsOfThisKernel() {
  return (LandlockVersion() >= kLeastLandlock ? unsigned{kFileWall} : 0U) |
         (HasCallFilter() ? unsigned{kCallWall} : 0U) | kNamespaces;
}

std::string Describe(unsigned walls) {
  const auto on = [&](unsigned wall) { return (walls & wall) != 0 ? "on" : "missing"; };
  return fmt::format("Landlock {}, seccomp {}, namespaces {}", on(kFileWall), on(kCallWall),
                     on(kNamespaces));
}

absl::Status CheckWalls(unsigned walls) {
  StatusCollector missing;
  if ((walls & kFileWall) == 0) {
    missing.Add(absl::FailedPreconditionError(
        "there is no Landlock (version 2 or later): a library could read and write what the "
        "service "
        "can; Linux 5.19 has it, with `landlock` in /sys/kernel/security/lsm"));
  }
  if ((walls & kCallWall) == 0) {
    missing.Add(absl::FailedPreconditionError(
        "there is no seccomp: a library could reach the network and other processes; kernels with "
        "CONFIG_SECCOMP_FILTER have it"));
  }
  return missing.Finish();
}

absl::Status EnterSandbox(const Sandbox& sandbox) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return ErrnoStatus(errno, "give up rights for", "the step");
  }
  QUENCH_RETURN_IF_ERROR(DropCapabilities());
  if ((sandbox.walls & kFileWall) != 0) QUENCH_RETURN_IF_ERROR(RestrictFiles(sandbox));
  if ((sandbox.walls & kCallWall) == 0) return absl::OkStatus();
  return RestrictCalls(sandbox.starts_processes, sandbox.gpus);
}

}  // namespace quench::steps
