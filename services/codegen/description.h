// A library's description of itself, as JSON in the form of docs/metadata.schema.json.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "services/codegen/emit/model_tables.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// All of the description of `model` except the UUID, which may be stamped later. `variants` are those of the library.
std::string DescriptionOf(const ModelTables& model, const std::vector<Target>& variants);

// The description with `uuid`, from the bytes of a library, an object or an archive for any machine, and
// with `kind` ("shared library", "object", "archive"), `machine`. Nothing is loaded or run.
// INVALID_ARGUMENT if the bytes are not those of one model.
absl::StatusOr<nlohmann::json> DescribeLibrary(std::span<const std::byte> bytes,
                                               const std::string& name);

}  // namespace quench::codegen
