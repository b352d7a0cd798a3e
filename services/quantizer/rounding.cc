#include "services/quantizer/rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "common/base/status.h"
#include "services/quantizer/weights.h"

namespace quench::quantizer {

absl::Status CheckRounding(const Rounding& rounding, const Graph& graph,
                           const std::string& fingerprint, const QuantizeOptions& options) {
  if (rounding.fingerprint != fingerprint) {
    return absl::FailedPreconditionError(
        fmt::format("the rounding is of module `{}`, this is `{}`: another model, or other passes",
                    rounding.fingerprint.substr(0, 16), fingerprint.substr(0, 16)));
  }
  if (const std::string words = SchemeWords(options); rounding.scheme != words) {
    return absl::FailedPreconditionError(
        fmt::format("the rounding is for weights of `{}`, these options make them `{}`: adapt it "
                    "again with the same options",
                    rounding.scheme, words));
  }
  StatusCollector problems;
  std::set<std::pair<std::string, int>> seen;
  for (const AdaptedKernel& kernel : rounding.kernels) {
    if (!seen.emplace(kernel.constant, kernel.axis).second) {
      problems.Add(absl::FailedPreconditionError(
          fmt::format("the rounding names `{}` twice", kernel.constant)));
    }
    const std::optional<ValueId> id = graph.FindValue(kernel.constant);
    const bool known = id && graph.value(*id).constant != nullptr;
    const int64_t size = known ? graph.value(*id).constant->tensor.size() : 0;
    if (known && kernel.otherwise.size() == static_cast<size_t>((size + 7) / 8)) continue;
    problems.Add(absl::FailedPreconditionError(
        fmt::format("the rounding of `{}` has {} bytes, which fits no constant of the module",
                    kernel.constant, kernel.otherwise.size())));
  }
  return problems.Finish();
}

const std::string* OtherwiseOf(const QuantizeOptions& options, const std::string& constant,
                               int axis) {
  if (options.rounding == nullptr) return nullptr;
  for (const AdaptedKernel& kernel : options.rounding->kernels) {
    if (kernel.constant == constant && kernel.axis == axis) return &kernel.otherwise;
  }
  return nullptr;
}

std::string ToTable(const Rounding& rounding, size_t rows) {
  std::vector<const AdaptedKernel*> order;
  int64_t weights = 0, moved = 0;
  for (const AdaptedKernel& kernel : rounding.kernels) {
    order.push_back(&kernel);
    weights += kernel.elements;
    moved += kernel.moved;
  }
  const auto gain = [](const AdaptedKernel* kernel) {
    const double db = kernel->adapted_db - kernel->nearest_db;
    return std::isnan(db) ? 0 : db;
  };
  std::stable_sort(order.begin(), order.end(), [&](const AdaptedKernel* a, const AdaptedKernel* b) {
    return gain(a) > gain(b);
  });
  std::string text = fmt::format(
      "  rounding adapted on {} samples: {} kernels, {:.1f} % of their weights not to the "
      "nearest\n",
      rounding.samples, rounding.kernels.size(),
      100.0 * static_cast<double>(moved) / static_cast<double>(std::max<int64_t>(weights, 1)));
  for (size_t i = 0; i < std::min(rows, order.size()); ++i) {
    text += fmt::format("  rounding {}: {:.1f} dB, to the nearest {:.1f} dB\n", order[i]->node,
                        order[i]->adapted_db, order[i]->nearest_db);
  }
  if (order.size() > rows)
    text += fmt::format("  rounding and {} kernels that gain less\n", order.size() - rows);
  return text;
}

}  // namespace quench::quantizer
