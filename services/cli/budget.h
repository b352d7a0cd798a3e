// Accuracy budgets of `quantize` and `compile --quantize`.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/options.h"
#include "services/quantizer/select.h"
#include "services/quantizer/statistics.h"

namespace quench::cli {

struct BudgetFlags {
  std::string max_drop, min_sqnr;  // as they were written; empty: none
  std::string data;                // samples to measure on; without a budget too
  std::string labels;
  SampleFormat format;
  quantizer::SelectOptions options;
};
void AddBudgetFlags(const Options& options, const std::shared_ptr<BudgetFlags>& flags);
// As it was written, or one that anything keeps; INVALID_ARGUMENT says what is wrong.
absl::StatusOr<quantizer::Budget> BudgetOf(const BudgetFlags& flags);
// Whether there is something to measure: a budget, or samples alone.
bool HasBudget(const BudgetFlags& flags);
// A budget needs `data` to be measured on.
absl::Status CheckBudget(const BudgetFlags& flags, const std::string& data);

// The layers of `graph`, quantized as `how` says, that must stay in float: a build with switches is
// tried on the samples.
absl::StatusOr<quantizer::Selection> SelectHere(const Graph& graph,
                                                const quantizer::Statistics* statistics,
                                                const quantizer::QuantizeOptions& how,
                                                const BudgetFlags& flags,
                                                const StepContext& context);

// The same, tried on samples that are open already; `options` have the budget.
absl::StatusOr<quantizer::Selection> SelectOn(const Graph& graph,
                                              const quantizer::Statistics* statistics,
                                              const quantizer::QuantizeOptions& how,
                                              const quantizer::SelectOptions& options,
                                              const Samples& samples, const StepContext& context,
                                              const std::filesystem::path& parent = {});

nlohmann::json CostToJson(const quantizer::Cost& cost);
nlohmann::json SelectionToJson(const quantizer::Selection& selection);

}  // namespace quench::cli
