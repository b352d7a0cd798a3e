// Lives of storages, counted from the steps that use them.
#pragma once

#include <map>

#include "services/codegen/plan/program.h"

namespace quench::codegen {

// Numbers the steps anew, inner steps before those that they lie in, and sets when each storage is in use; one that
// nothing uses is given up. Returns the new number of each step that had one, by the old.
std::map<int, int> CountLives(Program& program);

}  // namespace quench::codegen
