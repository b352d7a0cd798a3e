// Which entry of a checkpoint a variable of a saved model comes from: what the model's own restoring
// does, as far as it says so.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>

#include "services/importer/tensorflow/entry.h"

namespace quench::importer {

// Name of the variable's node -> key. Variables that nothing restores are left out.
absl::StatusOr<std::map<std::string, std::string>> RestoredKeys(TfProgram& program);

}  // namespace quench::importer
