// Result of a compilation, as text and as JSON.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "services/cli/quantization.h"
#include "services/codegen/report.h"

namespace quench::cli {

struct PrecisionReport;

struct CompileSummary {
  std::string library;  // a path
  const codegen::CompileReport& report;
  std::optional<Quantization> quantized;
  std::string key;      // what opens the library, as a sentence; "" where it is not encrypted
  std::string runtime;  // files of it, and for which system; "" where none were asked for
  std::string hint;     // PrecisionHint
  std::shared_ptr<const PrecisionReport> precision = nullptr;
};

void PrintCompileSummary(const CompileSummary& summary);

nlohmann::json CompileSummaryToJson(const CompileSummary& summary);

}  // namespace quench::cli
