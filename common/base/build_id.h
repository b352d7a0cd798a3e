// What this program was built from.
#pragma once

#include <string>

namespace quench {

// The linker's build id of the running program (ELF note NT_GNU_BUILD_ID): lower-case hex, the same
// for the same build; "" when it was linked without one.
std::string BuildId();

}  // namespace quench
