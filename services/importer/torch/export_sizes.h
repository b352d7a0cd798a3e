// Sizes in the JSON of torch.export's archives: numbers, symbols with ranges, expressions over them.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "services/importer/graph/interface.h"

namespace quench::importer {

class ExportSizes {
 public:
  // `program` has the symbols' ranges.
  explicit ExportSizes(const nlohmann::json& program);

  absl::StatusOr<std::vector<DeclaredDim>> DimsOf(const nlohmann::json& sizes) const;

 private:
  DeclaredDim DimOf(const std::string& expression) const;

  std::shared_ptr<SymbolTable> symbols_ = std::make_shared<SymbolTable>();
};

}  // namespace quench::importer
