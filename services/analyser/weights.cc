// The numbers inside parameters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "services/analyser/parameters.h"
#include "services/analyser/statistics.h"

namespace quench::analyser {

WeightReport StatisticsOf(const ParameterList::Parameter& parameter) {
  const Tensor& tensor = *parameter.tensor;
  TensorStatistics found = StatisticsOf(tensor);
  WeightReport report;
  report.name = parameter.name;
  report.layer = parameter.layer;
  report.type = fmt::format("{}[{}]", DataTypeName(tensor.dtype()), fmt::join(tensor.dims(), ", "));
  report.elements = found.elements;
  report.zeros = found.zeros;
  report.not_finite = found.nan + found.infinite;
  report.min = found.min;
  report.max = found.max;
  report.mean = found.mean;
  report.std = found.std;
  report.histogram = std::move(found.histogram);
  return report;
}

}  // namespace quench::analyser
