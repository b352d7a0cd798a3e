// Two things at once.
#pragma once

#include <functional>

namespace quench {

// Runs both and returns when both have ended. `aside` runs on a helper thread of this process if
// one gets to it before `work` has ended, else on this thread afterwards: no call waits for the work
// of another one. Neither may throw. For work of 50 microseconds and more.
void RunBeside(const std::function<void()>& aside, const std::function<void()>& work);

}  // namespace quench
