// What this program was built from.
#pragma once

#include <string>

namespace quench {

// The linker's build id of the running program (ELF note NT_GNU_BUILD_ID): lower-case hex, the same
// for the same build; "" when it was linked without one.
std::string BuildId();

// The commit that the build was configured at, the same in all programs of a build; "" unknown.
std::string SourceRevision();

}  // namespace quench
