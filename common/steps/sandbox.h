// What a step's process may still do: a model that takes over its parser finds no network, no other
// program, and no file but those of its step.
#pragma once

#include <absl/status/status.h>

#include <filesystem>
#include <string>

namespace quench::steps {

// From here on this process may write beneath `blobs` and `scratch` only and read beneath those and
// where programs' libraries and the kernel's tables lie (Landlock, where the kernel has it), and
// may not start programs, open sockets, trace or change other processes (seccomp, where the kernel
// has it). Applies to threads that start later, so call it first.
absl::Status EnterSandbox(const std::filesystem::path& blobs, const std::filesystem::path& scratch);

// For the log: which of the two this kernel has.
std::string SandboxSupport();

}  // namespace quench::steps
