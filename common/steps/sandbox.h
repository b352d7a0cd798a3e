// The sandbox of a step's process: a model that takes over its parser, or a library that it runs,
// can reach no network, no other program or process, and no files but those of its step.
#pragma once

#include <absl/status/status.h>

#include <filesystem>
#include <string>
#include <vector>

namespace quench::steps {

// Walls that a kernel can build. A mask.
enum Walls : unsigned {
  kFileWall = 1,   // Landlock, of version 2 or later
  kCallWall = 2,   // seccomp
  kNamespaces = 4  // of users, processes, networks and IPC
};
inline constexpr unsigned kAllWalls = kFileWall | kCallWall | kNamespaces;
// Without one of these, something of others is in reach. Namespaces stand behind them: what they hide is
// refused by system call too.
inline constexpr unsigned kNeededWalls = kFileWall | kCallWall;

struct Sandbox {
  // Files, and folders with all beneath; what does not exist is left out.
  std::vector<std::filesystem::path> readable;
  // Folders; everything beneath may be read, made, changed and removed.
  std::vector<std::filesystem::path> writable;
  // Children of this process may exist, in the same sandbox.
  bool starts_processes = false;
  unsigned walls = kAllWalls;
};

// The walls that this kernel has by its own word. Whether namespaces may be made is known by trying only.
unsigned WallsOfThisKernel();
// For the log: each wall, and whether it stands.
std::string Describe(unsigned walls);
// OK where `walls` has what kNeededWalls says, else what is missing, what that means and what would be right.
absl::Status CheckWalls(unsigned walls);

// Goes on in a new process, the only one that its namespaces have beside a first one which does nothing;
// this one waits for its end, ends all that remains in them, then ends in the same way. When stdin ends, so
// do all. This process must have one thread.
absl::Status EnterNamespaces();

// From here on this process, all of its threads, has what `sandbox` names and no rights of a superuser.
// Beside its files it may read where programs' libraries lie, and what the kernel says of the machine and of
// the process itself. Without a wall in `sandbox.walls` that is left out; a wall that cannot be built
// is an error. Namespaces are not its matter.
absl::Status EnterSandbox(const Sandbox& sandbox);

}  // namespace quench::steps
