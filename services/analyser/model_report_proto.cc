// ModelReport as a message.
#include "services/analyser/report_proto.h"

namespace quench::analyser {
namespace {

using Counts = google::protobuf::RepeatedPtrField<v1::OperatorCount>;
using TypeCounts = google::protobuf::RepeatedPtrField<v1::TypeCount>;
using Types = google::protobuf::RepeatedPtrField<v1::NamedType>;
using CountMap = std::map<std::string, int64_t>;

void AddCounts(const CountMap& counts, Counts* out) {
  for (const auto& [op, count] : counts) {
    v1::OperatorCount* added = out->Add();
    added->set_op(op);
    added->set_count(count);
  }
}

CountMap CountsOf(const Counts& message) {
  CountMap counts;
  for (const v1::OperatorCount& each : message) counts[each.op()] = each.count();
  return counts;
}

void AddTypeCounts(const CountMap& counts, TypeCounts* out) {
  for (const auto& [type, count] : counts) {
    v1::TypeCount* added = out->Add();
    added->set_type(type);
    added->set_count(count);
  }
}

CountMap TypeCountsOf(const TypeCounts& message) {
  CountMap counts;
  for (const v1::TypeCount& each : message) counts[each.type()] = each.count();
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

// LayerReport, OperatorWork and ModelReport name these fields alike.
template <typename Message>
void SetWork(const Work& work, Message* out) {
  out->set_macs(work.macs);
  out->set_macs_with_bias(work.macs_with_bias);
  out->set_macs_without_padding(work.macs_without_padding);
  out->set_operations(work.operations);
  out->set_operations_with_padding(work.operations_with_padding);
  out->set_flops(work.flops);
  out->set_parameters(work.parameters);
  out->set_weight_bytes(work.weight_bytes);
  out->set_activation_bytes(work.activation_bytes);
}

template <typename Message>
Work WorkOf(const Message& message) {
  return {.macs = message.macs(),
          .macs_with_bias = message.macs_with_bias(),
          .macs_without_padding = message.macs_without_padding(),
          .operations = message.operations(),
          .operations_with_padding = message.operations_with_padding(),
          .flops = message.flops(),
          .parameters = message.parameters(),
          .weight_bytes = message.weight_bytes(),
          .activation_bytes = message.activation_bytes()};
}

void AddLayer(const LayerReport& layer, v1::LayerReport* out) {
  out->set_node(layer.node);
  out->set_op(layer.op);
  out->set_kind(layer.kind);
  out->set_kernel(layer.kernel);
  out->mutable_inputs()->Assign(layer.inputs.begin(), layer.inputs.end());
  out->mutable_outputs()->Assign(layer.outputs.begin(), layer.outputs.end());
  SetWork(layer.work, out);
  out->set_shared_parameters(layer.shared_parameters);
  out->set_input_bytes(layer.input_bytes);
  out->set_first_input_bytes(layer.first_input_bytes);
  out->set_first_output_bytes(layer.first_output_bytes);
  out->set_nested_bytes(layer.nested_bytes);
  out->set_live_bytes(layer.live_bytes);
  out->mutable_reads()->Assign(layer.reads.begin(), layer.reads.end());
  out->set_moved_bytes(layer.moved_bytes);
  out->set_predicted_seconds(layer.predicted_seconds);
  out->set_bound(layer.bound);
}

LayerReport LayerOf(const v1::LayerReport& message) {
  return {.node = message.node(),
          .op = message.op(),
          .kind = message.kind(),
          .kernel = message.kernel(),
          .inputs = {message.inputs().begin(), message.inputs().end()},
          .outputs = {message.outputs().begin(), message.outputs().end()},
          .work = WorkOf(message),
          .shared_parameters = message.shared_parameters(),
          .input_bytes = message.input_bytes(),
          .first_input_bytes = message.first_input_bytes(),
          .first_output_bytes = message.first_output_bytes(),
          .nested_bytes = message.nested_bytes(),
          .live_bytes = message.live_bytes(),
          .reads = {message.reads().begin(), message.reads().end()},
          .moved_bytes = message.moved_bytes(),
          .predicted_seconds = message.predicted_seconds(),
          .bound = message.bound()};
}

void AddWeight(const WeightReport& weight, v1::WeightStatistics* out) {
  out->set_name(weight.name);
  out->set_type(weight.type);
  out->set_layer(weight.layer);
  out->set_elements(weight.elements);
  out->set_zeros(weight.zeros);
  out->set_not_finite(weight.not_finite);
  out->set_min(weight.min);
  out->set_max(weight.max);
  out->set_mean(weight.mean);
  out->set_std(weight.std);
  out->mutable_histogram()->Assign(weight.histogram.begin(), weight.histogram.end());
}

WeightReport WeightOf(const v1::WeightStatistics& message) {
  return {.name = message.name(),
          .type = message.type(),
          .layer = message.layer(),
          .elements = message.elements(),
          .zeros = message.zeros(),
          .not_finite = message.not_finite(),
          .min = message.min(),
          .max = message.max(),
          .mean = message.mean(),
          .std = message.std(),
          .histogram = {message.histogram().begin(), message.histogram().end()}};
}

void AddValue(const ValueLife& value, v1::ValueLife* out) {
  out->set_name(value.name);
  out->set_type(value.type);
  out->set_bytes(value.bytes);
  out->set_first(value.first);
  out->set_last(value.last);
}

}  // namespace

v1::Ceilings ToProto(const Ceilings& ceilings) {
  v1::Ceilings out;
  out.set_name(ceilings.name);
  out.set_source(ceilings.source);
  out.set_gflops(ceilings.gflops);
  out.set_gbytes(ceilings.gbytes);
  return out;
}

Ceilings FromProto(const v1::Ceilings& message) {
  return {message.name(), message.source(), message.gflops(), message.gbytes()};
}

v1::ModelReport ToProto(const ModelReport& report) {
  v1::ModelReport out;
  out.set_name(report.name);
  out.set_fingerprint(report.fingerprint);
  out.set_structure_hash(report.structure_hash);
  AddTypes(report.inputs, out.mutable_inputs());
  AddTypes(report.outputs, out.mutable_outputs());
  AddCounts(report.operators, out.mutable_operators());
  SetWork(report.work, &out);
  AddTypeCounts(report.parameters_by_type, out.mutable_parameters_by_type());
  AddTypeCounts(report.weight_bytes_by_type, out.mutable_weight_bytes_by_type());
  AddCounts(report.macs_by_op, out.mutable_macs_by_operator());
  out.set_trainable_parameters(report.trainable_parameters);
  out.set_shared_parameters(report.shared_parameters);
  out.set_buffers(report.buffers);
  out.set_input_bytes(report.input_bytes);
  out.set_peak_activation_bytes(report.peak_activation_bytes);
  out.set_forward_backward_bytes(report.forward_backward_bytes);
  out.set_nested_activation_bytes(report.nested_activation_bytes);
  AddCounts(report.uncounted, out.mutable_uncounted());
  for (const OperatorReport& each : report.by_operator) {
    v1::OperatorWork* added = out.add_work();
    added->set_op(each.op);
    added->set_kind(each.kind);
    added->set_layers(each.layers);
    SetWork(each.work, added);
  }
  for (const LayerReport& layer : report.layers) AddLayer(layer, out.add_layers());
  for (const ValueLife& value : report.values) AddValue(value, out.add_values());
  for (const WeightReport& weight : report.weights) AddWeight(weight, out.add_weights());
  out.mutable_rules()->Assign(report.rules.begin(), report.rules.end());
  for (const auto& [symbol, size] : report.symbol_sizes) {
    auto* added = out.add_sizes();
    added->set_symbol(symbol);
    added->set_size(size);
  }
  if (report.ceilings) *out.mutable_ceilings() = ToProto(*report.ceilings);
  out.set_moved_bytes(report.moved_bytes);
  out.set_predicted_seconds(report.predicted_seconds);
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
  report.work = WorkOf(message);
  report.parameters_by_type = TypeCountsOf(message.parameters_by_type());
  report.weight_bytes_by_type = TypeCountsOf(message.weight_bytes_by_type());
  report.macs_by_op = CountsOf(message.macs_by_operator());
  report.trainable_parameters = message.trainable_parameters();
  report.shared_parameters = message.shared_parameters();
  report.buffers = message.buffers();
  report.input_bytes = message.input_bytes();
  report.peak_activation_bytes = message.peak_activation_bytes();
  report.forward_backward_bytes = message.forward_backward_bytes();
  report.nested_activation_bytes = message.nested_activation_bytes();
  report.uncounted = CountsOf(message.uncounted());
  for (const v1::OperatorWork& each : message.work())
    report.by_operator.push_back({each.op(), each.kind(), each.layers(), WorkOf(each)});
  for (const v1::LayerReport& layer : message.layers()) report.layers.push_back(LayerOf(layer));
  for (const v1::ValueLife& value : message.values()) {
    report.values.push_back(
        {value.name(), value.type(), value.bytes(), value.first(), value.last()});
  }
  for (const v1::WeightStatistics& weight : message.weights())
    report.weights.push_back(WeightOf(weight));
  report.rules = {message.rules().begin(), message.rules().end()};
  for (const auto& size : message.sizes()) report.symbol_sizes[size.symbol()] = size.size();
  if (message.has_ceilings()) report.ceilings = FromProto(message.ceilings());
  report.moved_bytes = message.moved_bytes();
  report.predicted_seconds = message.predicted_seconds();
  return report;
}

}  // namespace quench::analyser
