// Keras 1's names of layers and of what they are told, as Keras 2 has them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace quench::importer {

void RenameOldConfig(std::string& class_name, nlohmann::json& config);

}  // namespace quench::importer
