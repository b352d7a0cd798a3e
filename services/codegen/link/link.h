// Objects into libraries, with lld inside this process: no compiler, linker or sysroot on the
// user's machine.
#pragma once

#include <absl/status/status.h>

#include <filesystem>
#include <string>
#include <vector>

#include "services/codegen/targets/target.h"

namespace quench::codegen {

// Links objects into a shared library that needs no other one. The linker's complaints become the
// error. Thread-safe: calls take turns. Equal inputs give equal bytes.
absl::Status LinkShared(const Target& target, const std::vector<std::filesystem::path>& objects,
                        const std::string& soname, const std::filesystem::path& output);
// Links objects into one relocatable object.
absl::Status LinkRelocatable(const Target& target,
                             const std::vector<std::filesystem::path>& objects,
                             const std::filesystem::path& output);
// An archive of one member with an index of one symbol. Owner, time and mode are fixed.
absl::Status WriteArchive(const std::filesystem::path& object, const std::string& member,
                          const std::string& symbol, const std::filesystem::path& output);

}  // namespace quench::codegen
