#include "common/steps/limits.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "common/base/files.h"
#include "common/runtime/quench_rt.h"

namespace quench::steps {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeastMemory = int64_t{4} << 30;
constexpr int64_t kLeastReserve = int64_t{512} << 20;
constexpr int64_t kHoursOfEachCpu = 4;
constexpr int64_t kLeastDisk = int64_t{1} << 30;
constexpr int kOpenFiles = 4096;
constexpr int kProcesses = 1024, kProcessesOfEachCpu = 16;

// The files of version 2 and of version 1, as a container sees its own group; `max`, or a number beyond all
// memory, is no limit.
int64_t MemoryOfControlGroup() {
  int64_t least = kUnknown;
  for (const char* file :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const auto text = ReadFile(file, 64);
    int64_t bytes = 0;
    if (!text.ok()) continue;
    const auto end = text->data() + text->size();
    if (std::from_chars(text->data(), end, bytes).ec == std::errc() && bytes > 0) {
      least = std::min(least, bytes);
    }
  }
  return least;
}

int64_t MemoryOfMachine() {
  const int64_t pages = ::sysconf(_SC_PHYS_PAGES), bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && bytes > 0 ? pages * bytes : kUnknown;
}

int64_t HalfOfDisk(const std::filesystem::path& folder) {
  struct statvfs disk{};
  // A folder that does not exist yet will be on the disk of the folder above.
  for (std::filesystem::path at = folder;; at = at.parent_path()) {
    if (::statvfs(at.empty() ? "." : at.c_str(), &disk) == 0) break;
    if (at == at.parent_path()) return kUnknown;
  }
  const uint64_t bytes = disk.f_frsize * disk.f_blocks / 2;
  return std::clamp<int64_t>(static_cast<int64_t>(std::min<uint64_t>(bytes, kUnknown)), kLeastDisk,
                             kUnknown);
}

}  // namespace

int64_t MemoryForSteps(int64_t memory) {
  return memory - std::min(memory / 2, std::max(kLeastReserve, memory / 10));
}

int64_t MemoryOfThisMachine() { return std::min(MemoryOfMachine(), MemoryOfControlGroup()); }

int64_t MemoryOfEachSlot(int64_t memory, int slots) {
  return std::max(kLeastMemory, memory / std::max(1, slots));
}

StepLimits LimitsOfThisMachine(const std::filesystem::path& scratch, int slots) {
  const int64_t cpus = quench_rt_cpus();
  std::error_code error;
  StepLimits limits;
  limits.memory_bytes = MemoryOfEachSlot(MemoryOfThisMachine(), slots);
  limits.most_memory_bytes = std::max(limits.memory_bytes, MemoryForSteps(MemoryOfThisMachine()));
  limits.cpu_seconds = kHoursOfEachCpu * 3600 * cpus;
  limits.disk_bytes =
      HalfOfDisk(scratch.empty() ? std::filesystem::temp_directory_path(error) : scratch);
  limits.open_files = kOpenFiles;
  limits.processes = kProcesses + kProcessesOfEachCpu * static_cast<int>(cpus);
  return limits;
}

}  // namespace quench::steps
