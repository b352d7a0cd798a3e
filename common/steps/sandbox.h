// The sandbox of a step's process: a model that takes over its parser, or a library that it runs,
// can reach no network, no other program or process, and no files but those of its step.
#pragma once

#include <absl/status/status.h>

#include <filesystem>
#include <string>
#include <vector>

namespace quench::steps {

// A mask of walls that a kernel can build.
enum Walls : unsigned {
  kFileWall = 1,   // Landlock, of version 2 or later
  kCallWall = 2,   // seccomp
  kNamespaces = 4  // of users, processes, networks and IPC
};
inline constexpr unsigned kAllWalls = kFileWall | kCallWall | kNamespaces;
// Without one of these, resources of others are in reach. Namespaces are a second line of defence: the
// resources that they hide are also refused by system call.
inline constexpr unsigned kNeededWalls = kFileWall | kCallWall;

struct Sandbox {
  // Readable files, and folders with everything beneath; missing ones are left out.
  std::vector<std::filesystem::path> readable;
  // Writable folders: everything beneath may be read, made, changed and removed.
  std::vector<std::filesystem::path> writable;
  // Whether the process may use the GPUs of the machine, through NVIDIA's driver.
  bool gpus = false;
  // Whether this process may have children, in the same sandbox.
  bool starts_processes = false;
  unsigned walls = kAllWalls;
};

// The walls that this kernel reports. Only a try shows whether namespaces can be made.
unsigned WallsOfThisKernel();
// A text for the log: each wall, and whether it is in place.
std::string Describe(unsigned walls);
// OK if `walls` has all of kNeededWalls; else the error says what is missing, what that means and what to do.
absl::Status CheckWalls(unsigned walls);

// Continues in a new process, alone in its namespaces except for a first process which does nothing. The
// calling process waits for its end, ends all processes that remain in the namespaces, then ends in the same
// way. When stdin ends, all of them end. The calling process must have one thread.
absl::Status EnterNamespaces();

// From here on all threads of this process can only access what `sandbox` names, without a superuser's rights.
// In addition it may read the folders of programs' libraries, and the kernel's facts about the machine and the
// process itself. Walls that are not in `sandbox.walls` are left out; a wall that cannot be built is an
// error. Namespaces are not handled here.
absl::Status EnterSandbox(const Sandbox& sandbox);

}  // namespace quench::steps
