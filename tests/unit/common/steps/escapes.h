// Attempts of code that has taken over a step.
#pragma once

#include <string>

namespace quench::steps {

// "ok" when it got out, else the error's text; nothing for a name that is not an escape. The argument is a path,
// or the number of a process. Signals that are sent are number 0, which does nothing.
std::string TryEscape(const std::string& name, const std::string& argument,
                      const std::string& scratch);

}  // namespace quench::steps
