// The entry of a checkpoint that a variable of a saved model comes from: found from the model's own
// restoring operations, as far as they tell.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>

#include "services/importer/tensorflow/entry.h"

namespace quench::importer {

// Name of the variable's node -> key. Variables that nothing restores are left out.
absl::StatusOr<std::map<std::string, std::string>> RestoredKeys(TfProgram& program);

}  // namespace quench::importer
