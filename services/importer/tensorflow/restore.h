// The checkpoint's entry for each variable of a saved model, found from the model's own restoring
// operations, as far as possible.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>

#include "services/importer/tensorflow/entry.h"

namespace quench::importer {

// Name of the variable's node -> key. Variables that nothing restores are left out.
absl::StatusOr<std::map<std::string, std::string>> RestoredKeys(TfProgram& program);

}  // namespace quench::importer
