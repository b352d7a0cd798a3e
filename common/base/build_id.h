// The source revision that this program was built from.
#pragma once

#include <string>

namespace quench {

// The linker's build id (ELF note NT_GNU_BUILD_ID) of the running program and the libraries of ours that
// it loads (libquench_*), combined by exclusive or: lower-case hex, the same for the same build; ""
// when they were linked without one.
std::string BuildId();

// The commit that the build was configured at, the same in all programs of a build; "" unknown.
std::string SourceRevision();

}  // namespace quench
