#include "services/analyser/report_proto.h"

#include <algorithm>

namespace quench::analyser {
namespace {

constexpr int kMaxLayers = 10'000;

using Counts = google::protobuf::RepeatedPtrField<v1::OperatorCount>;
using Types = google::protobuf::RepeatedPtrField<v1::NamedType>;
using Errors = google::protobuf::RepeatedPtrField<v1::ValueError>;

void AddCounts(const std::map<std::string, int64_t>& counts, Counts* out) {
  for (const auto& [op, count] : counts) {
    v1::OperatorCount* added = out->Add();
    added->set_op(op);
    added->set_count(count);
  }
}

std::map<std::string, int64_t> CountsOf(const Counts& message) {
  std::map<std::string, int64_t> counts;
  for (const v1::OperatorCount& each : message) counts[each.op()] = each.count();
  return counts;
}

void AddTypes(const std::vector<std::pair<std::string, std::string>>& types, Types* out) {
  for (const auto& [name, type] : types) {
    v1::NamedType* added = out->Add();
    added->set_name(name);
    added->set_type(type);
  }
}

std::vector<std::pair<std::string, std::string>> TypesOf(const Types& message) {
  std::vector<std::pair<std::string, std::string>> types;
  for (const v1::NamedType& each : message) types.emplace_back(each.name(), each.type());
  return types;
}

void AddErrors(const std::vector<OutputError>& errors, int most, Errors* out) {
  for (const OutputError& error : errors) {
    if (out->size() == most) return;
    v1::ValueError* added = out->Add();
    added->set_name(error.name);
    added->set_error(error.error);
  }
}

std::vector<OutputError> ErrorsOf(const Errors& message) {
  std::vector<OutputError> errors;
  for (const v1::ValueError& each : message) errors.push_back({each.name(), each.error()});
  return errors;
}

}  // namespace

v1::ModelReport ToProto(const ModelReport& report) {
  v1::ModelReport out;
  out.set_name(report.name);
  out.set_fingerprint(report.fingerprint);
  out.set_structure_hash(report.structure_hash);
  AddTypes(report.inputs, out.mutable_inputs());
  AddTypes(report.outputs, out.mutable_outputs());
  AddCounts(report.operators, out.mutable_operators());
  out.set_parameters(report.parameters);
  out.set_weight_bytes(report.weight_bytes);
  out.set_macs(report.macs);
  out.set_macs_with_bias(report.macs_with_bias);
  AddCounts(report.macs_by_op, out.mutable_macs_by_operator());
  out.set_activation_bytes(report.activation_bytes);
  out.set_peak_activation_bytes(report.peak_activation_bytes);
  for (const LayerReport& layer : report.layers) {
    v1::LayerReport* added = out.add_layers();
    added->set_node(layer.node);
    added->set_op(layer.op);
    added->mutable_outputs()->Assign(layer.output_shapes.begin(), layer.output_shapes.end());
    added->set_parameters(layer.parameters);
    added->set_macs(layer.macs);
    added->set_macs_with_bias(layer.macs_with_bias);
    added->set_activation_bytes(layer.activation_bytes);
  }
  out.mutable_rules()->Assign(report.rules.begin(), report.rules.end());
  for (const auto& [symbol, size] : report.symbol_sizes) {
    auto* added = out.add_sizes();
    added->set_symbol(symbol);
    added->set_size(size);
  }
  return out;
}

ModelReport FromProto(const v1::ModelReport& message) {
  ModelReport report;
  report.name = message.name();
  report.fingerprint = message.fingerprint();
  report.structure_hash = message.structure_hash();
  report.inputs = TypesOf(message.inputs());
  report.outputs = TypesOf(message.outputs());
  report.operators = CountsOf(message.operators());
  report.parameters = message.parameters();
  report.weight_bytes = message.weight_bytes();
  report.macs = message.macs();
  report.macs_with_bias = message.macs_with_bias();
  report.macs_by_op = CountsOf(message.macs_by_operator());
  report.activation_bytes = message.activation_bytes();
  report.peak_activation_bytes = message.peak_activation_bytes();
  for (const v1::LayerReport& layer : message.layers()) {
    report.layers.push_back({layer.node(),
                             layer.op(),
                             {layer.outputs().begin(), layer.outputs().end()},
                             layer.parameters(),
                             layer.macs(),
                             layer.macs_with_bias(),
                             layer.activation_bytes()});
  }
  report.rules = {message.rules().begin(), message.rules().end()};
  for (const auto& size : message.sizes()) report.symbol_sizes[size.symbol()] = size.size();
  return report;
}

v1::VerifyResult ToProto(const VerifyReport& report) {
  v1::VerifyResult out;
  out.set_passed(report.passed);
  out.set_oracle(report.oracle == "reference" ? v1::ORACLE_REFERENCE : v1::ORACLE_INTERPRETER);
  AddErrors(report.outputs, std::numeric_limits<int>::max(), out.mutable_outputs());
  AddErrors(report.layers, kMaxLayers, out.mutable_layers());
  out.set_first_layer(report.first_layer);
  out.set_worst_layer(report.worst_layer);
  return out;
}

VerifyReport FromProto(const v1::VerifyResult& message) {
  VerifyReport report;
  report.passed = message.passed();
  report.oracle = message.oracle() == v1::ORACLE_REFERENCE ? "reference" : "interpreter";
  report.outputs = ErrorsOf(message.outputs());
  report.layers = ErrorsOf(message.layers());
  report.first_layer = message.first_layer();
  report.worst_layer = message.worst_layer();
  return report;
}

v1::CompareResult ToProto(const CompareReport& report) {
  v1::CompareResult out;
  out.set_samples(report.samples);
  const auto add = [](const ValueComparison& value, v1::ValueComparison* added) {
    added->set_value(value.value);
    added->set_elements(value.elements);
    added->set_sqnr_db(value.sqnr_db);
    added->set_cosine(value.cosine);
    added->set_max_error(value.max_error);
    added->set_error(value.error);
    if (value.saturation) added->set_saturation(*value.saturation);
  };
  for (const ValueComparison& value : report.outputs) add(value, out.add_outputs());
  for (const ValueComparison& value : report.layers) {
    if (out.layers_size() < kMaxLayers) add(value, out.add_layers());
  }
  if (!report.accuracy) return out;
  v1::Accuracy& accuracy = *out.mutable_accuracy();
  accuracy.set_rows(report.accuracy->rows);
  accuracy.set_agreement(report.accuracy->agreement);
  if (report.accuracy->reference_top1) {
    accuracy.set_reference_top1(*report.accuracy->reference_top1);
    accuracy.set_top1(*report.accuracy->other_top1);
    accuracy.set_reference_top5(*report.accuracy->reference_top5);
    accuracy.set_top5(*report.accuracy->other_top5);
  }
  return out;
}

}  // namespace quench::analyser
