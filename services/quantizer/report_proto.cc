#include "services/quantizer/report_proto.h"

namespace quench::quantizer {

void FillReport(const QuantizeReport& report, v1::QuantizeResult& result) {
  for (const LayerChoice& layer : report.layers) {
    v1::LayerChoice& added = *result.add_layers();
    added.set_node(layer.node);
    added.set_op(layer.op);
    added.set_quantized(layer.quantized);
    added.set_reason(layer.reason);
  }
  result.set_static_values(report.static_values);
  result.set_dynamic_values(report.dynamic_values);
  result.set_weights(report.weights);
  result.set_corrected_biases(report.corrected_biases);
  result.set_adapted_kernels(report.adapted_kernels);
  result.mutable_warnings()->Assign(report.warnings.begin(), report.warnings.end());
}

QuantizeReport ReportOf(const v1::QuantizeResult& result) {
  QuantizeReport report;
  for (const v1::LayerChoice& layer : result.layers())
    report.layers.push_back({layer.node(), layer.op(), layer.quantized(), layer.reason()});
  report.static_values = result.static_values();
  report.dynamic_values = result.dynamic_values();
  report.weights = result.weights();
  report.corrected_biases = result.corrected_biases();
  report.adapted_kernels = result.adapted_kernels();
  report.warnings = {result.warnings().begin(), result.warnings().end()};
  return report;
}

}  // namespace quench::quantizer
