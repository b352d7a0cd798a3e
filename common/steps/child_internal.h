// What parent and child agree on beside their messages.
#pragma once

namespace quench::steps {

// The child could not get memory within its limit.
inline constexpr int kExitOutOfMemory = 77;

}  // namespace quench::steps
