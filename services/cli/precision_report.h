// Report of `compile --precision fastest`, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/precision_choice.h"
#include "services/quantizer/cost.h"

namespace quench::cli {

struct PrecisionBuild {
  std::string name;  // a type, or "mixed"
  double milliseconds = 0;
  std::optional<quantizer::Cost> cost;  // absent without data, and for f32
  bool keeps_budget = true;
};

struct PrecisionReport {
  std::vector<PrecisionBuild> builds;  // in one type each, and the mixed one
  std::string chosen;                  // name of a build
  std::vector<PrecisionLayer> layers;
  Assignment types;  // of the library
  quantizer::Budget budget;
  bool default_budget = false;             // nobody gave one
  int64_t samples = 0;                     // that accuracy was measured on; 0: it was not
  bool integers = false;                   // whether int8 was tried
  std::optional<quantizer::Cost> written;  // the library's own cost
};

std::string PrecisionText(const PrecisionReport& report);
nlohmann::json PrecisionToJson(const PrecisionReport& report);

}  // namespace quench::cli
