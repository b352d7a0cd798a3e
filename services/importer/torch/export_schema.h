// The JSON of torch.export's archives, in the form of its newest schema.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "services/importer/torch/archive.h"
#include "services/importer/torch/tensors.h"

namespace quench::importer {

// A member of an object, or null; members that are `null` are missing.
const nlohmann::json* ExportMember(const nlohmann::json& object, const char* name);
// A string, or "" for anything else or a missing member.
std::string ExportText(const nlohmann::json* json);
// The name within {"as_tensor": {"name": ...}} and similar objects.
std::string ExportNameIn(const nlohmann::json& argument);
// The element type for torch.export's number.
absl::StatusOr<DataType> ExportDataType(const nlohmann::json* number);

// The model's program: `graph_module` with `graph` and `signature`, `range_constraints`. The signature of schema 1
// (torch 2.1) becomes specs of inputs and outputs, as later schemas have them.
absl::StatusOr<nlohmann::json> ReadExportProgram(const TorchArchive& archive);

// Parameters, buffers and constants, by name. Dense ones share the archive's bytes.
absl::StatusOr<std::map<std::string, Tensor>> ReadExportWeights(const TorchArchive& archive);

}  // namespace quench::importer
