// Reports on modules as messages.
#include "services/analyser/report_proto.h"

namespace quench::analyser {
namespace {

using Strings = google::protobuf::RepeatedPtrField<std::string>;
using Values = google::protobuf::RepeatedPtrField<v1::ValueFacts>;

template <typename To, typename From>
To Copied(const From& from) {
  return To(from.begin(), from.end());
}

void AddValues(const std::vector<ValueFacts>& values, Values* out) {
  for (const ValueFacts& value : values) {
    v1::ValueFacts* added = out->Add();
    added->set_name(value.name);
    added->set_type(value.type);
    added->set_bytes(value.bytes.value_or(0));
    added->set_constant(value.constant);
  }
}

// `wanted`: sizes are, so that 0 bytes are not a number.
std::vector<ValueFacts> ValuesOf(const Values& message, bool wanted) {
  std::vector<ValueFacts> values;
  for (const v1::ValueFacts& value : message) {
    ValueFacts& facts =
        values.emplace_back(value.name(), value.type(), value.bytes(), value.constant());
    if (wanted && value.bytes() == 0) facts.bytes = std::nullopt;
  }
  return values;
}

using NodeChanges = google::protobuf::RepeatedPtrField<v1::NodeChange>;

void AddNodes(const std::vector<NodeChange>& nodes, NodeChanges* out) {
  for (const NodeChange& node : nodes) {
    v1::NodeChange* added = out->Add();
    added->set_graph(node.graph);
    added->set_name(node.name);
    added->set_op(node.op);
    *added->mutable_changes() = Copied<Strings>(node.changes);
  }
}

std::vector<NodeChange> NodesOf(const NodeChanges& message) {
  std::vector<NodeChange> nodes;
  for (const v1::NodeChange& node : message) {
    nodes.push_back(
        {node.graph(), node.name(), node.op(), Copied<std::vector<std::string>>(node.changes())});
  }
  return nodes;
}

}  // namespace

v1::ModuleFacts ToProto(const ModuleFacts& facts) {
  v1::ModuleFacts message;
  message.set_name(facts.name);
  message.set_stage(facts.stage);
  message.set_fingerprint(facts.fingerprint);
  message.set_structure_hash(facts.structure_hash);
  message.mutable_metadata()->insert(facts.metadata.begin(), facts.metadata.end());
  message.set_graph_count(facts.graph_count);
  message.set_subgraph_count(facts.subgraph_count);
  message.mutable_operators()->insert(facts.operators.begin(), facts.operators.end());
  message.set_is_dynamic(facts.is_dynamic);
  message.mutable_sizes()->insert(facts.sizes.begin(), facts.sizes.end());
  message.set_sizes_wanted(facts.sizes_wanted);
  message.set_is_quantized(facts.is_quantized);
  message.set_is_calibrated(facts.is_calibrated);
  message.set_is_split_tensors(facts.is_split_tensors);
  *message.mutable_partition_backends() = Copied<Strings>(facts.partition_backends);
  *message.mutable_unfrozen_parameters() = Copied<Strings>(facts.unfrozen_parameters);
  AddValues(facts.inputs, message.mutable_inputs());
  AddValues(facts.outputs, message.mutable_outputs());
  for (const NodeFacts& node : facts.nodes) {
    v1::NodeFacts* added = message.add_nodes();
    added->set_graph(node.graph);
    added->set_name(node.name);
    added->set_op(node.op);
    added->set_domain(node.domain);
    added->set_version(node.version);
    added->set_origin(node.origin);
    added->mutable_attributes()->insert(node.attributes.begin(), node.attributes.end());
    AddValues(node.inputs, added->mutable_inputs());
    AddValues(node.outputs, added->mutable_outputs());
  }
  return message;
}

ModuleFacts FromProto(const v1::ModuleFacts& message) {
  using Texts = std::vector<std::string>;
  using TextMap = std::map<std::string, std::string>;
  ModuleFacts facts;
  facts.name = message.name();
  facts.stage = message.stage();
  facts.fingerprint = message.fingerprint();
  facts.structure_hash = message.structure_hash();
  facts.metadata = Copied<TextMap>(message.metadata());
  facts.graph_count = message.graph_count();
  facts.subgraph_count = message.subgraph_count();
  facts.operators = Copied<std::map<std::string, int64_t>>(message.operators());
  facts.is_dynamic = message.is_dynamic();
  facts.is_quantized = message.is_quantized();
  facts.is_calibrated = message.is_calibrated();
  facts.is_split_tensors = message.is_split_tensors();
  facts.partition_backends = Copied<Texts>(message.partition_backends());
  facts.unfrozen_parameters = Copied<Texts>(message.unfrozen_parameters());
  facts.sizes = Copied<std::map<std::string, int64_t>>(message.sizes());
  facts.sizes_wanted = message.sizes_wanted();
  const bool wanted = !facts.sizes_wanted.empty();
  facts.inputs = ValuesOf(message.inputs(), wanted);
  facts.outputs = ValuesOf(message.outputs(), wanted);
  for (const v1::NodeFacts& node : message.nodes()) {
    facts.nodes.push_back({node.graph(), node.name(), node.op(), node.domain(), node.version(),
                           node.origin(), Copied<TextMap>(node.attributes()),
                           ValuesOf(node.inputs(), wanted), ValuesOf(node.outputs(), wanted)});
  }
  return facts;
}

v1::PartitionReport ToProto(const PartitionReport& report) {
  v1::PartitionReport message;
  message.set_backend(report.backend);
  message.set_simplified(report.simplified);
  for (const PartitionPart& part : report.parts) {
    v1::PartitionPart* added = message.add_parts();
    added->set_name(part.name);
    added->set_nodes(part.nodes);
    added->set_macs(part.macs);
    added->mutable_operators()->insert(part.operators.begin(), part.operators.end());
    *added->mutable_inputs() = Copied<Strings>(part.inputs);
    *added->mutable_outputs() = Copied<Strings>(part.outputs);
  }
  for (const LeftNode& node : report.left) {
    v1::LeftNode* added = message.add_left();
    added->set_node(node.node);
    added->set_op(node.op);
    added->set_reason(node.reason);
  }
  return message;
}

PartitionReport FromProto(const v1::PartitionReport& message) {
  using Texts = std::vector<std::string>;
  PartitionReport report;
  report.backend = message.backend();
  report.simplified = message.simplified();
  for (const v1::PartitionPart& part : message.parts()) {
    report.parts.push_back({part.name(), part.nodes(), part.macs(),
                            Copied<std::map<std::string, int64_t>>(part.operators()),
                            Copied<Texts>(part.inputs()), Copied<Texts>(part.outputs())});
  }
  for (const v1::LeftNode& node : message.left())
    report.left.push_back({node.node(), node.op(), node.reason()});
  return report;
}

v1::InferResult ToProto(const InferReport& report) {
  v1::InferResult message;
  message.set_source(report.source);
  *message.mutable_absent() = Copied<Strings>(report.absent);
  for (const InferredValue& value : report.values) {
    v1::InferredValue* added = message.add_values();
    added->set_name(value.name);
    added->set_node(value.node);
    added->set_op(value.op);
    added->set_type(value.type);
    added->set_output(value.output);
    const TensorStatistics& found = value.statistics;
    v1::TensorStatistics& statistics = *added->mutable_statistics();
    statistics.set_elements(found.elements);
    statistics.set_zeros(found.zeros);
    statistics.set_nan(found.nan);
    statistics.set_infinite(found.infinite);
    statistics.set_min(found.min);
    statistics.set_max(found.max);
    statistics.set_mean(found.mean);
    statistics.set_std(found.std);
    statistics.mutable_histogram()->Assign(found.histogram.begin(), found.histogram.end());
  }
  return message;
}

InferReport FromProto(const v1::InferResult& message) {
  InferReport report;
  report.source = message.source();
  report.absent = Copied<std::vector<std::string>>(message.absent());
  for (const v1::InferredValue& value : message.values()) {
    const v1::TensorStatistics& found = value.statistics();
    report.values.push_back(
        {value.name(), value.node(), value.op(), value.type(), value.output(),
         TensorStatistics{found.elements(), found.zeros(), found.nan(), found.infinite(),
                          found.min(), found.max(), found.mean(), found.std(),
                          Copied<std::vector<int64_t>>(found.histogram())}});
  }
  return report;
}

v1::ModuleDiff ToProto(const ModuleDiff& diff) {
  v1::ModuleDiff message;
  message.set_equal(diff.equal);
  message.set_equal_structure(diff.equal_structure);
  message.set_fingerprint(diff.fingerprint);
  message.set_other_fingerprint(diff.other_fingerprint);
  *message.mutable_interface() = Copied<Strings>(diff.interface);
  AddNodes(diff.reference_only, message.mutable_reference_only());
  AddNodes(diff.other_only, message.mutable_other_only());
  AddNodes(diff.changed, message.mutable_changed());
  for (const WeightChange& weight : diff.weights) {
    v1::WeightChange* added = message.add_weights();
    added->set_graph(weight.graph);
    added->set_name(weight.name);
    added->set_type(weight.type);
    added->set_other_type(weight.other_type);
    added->set_elements(weight.elements);
    added->set_differing(weight.differing);
    added->set_max_difference(weight.max_difference);
  }
  return message;
}

ModuleDiff FromProto(const v1::ModuleDiff& message) {
  ModuleDiff diff;
  diff.equal = message.equal();
  diff.equal_structure = message.equal_structure();
  diff.fingerprint = message.fingerprint();
  diff.other_fingerprint = message.other_fingerprint();
  diff.interface = Copied<std::vector<std::string>>(message.interface());
  diff.reference_only = NodesOf(message.reference_only());
  diff.other_only = NodesOf(message.other_only());
  diff.changed = NodesOf(message.changed());
  for (const v1::WeightChange& weight : message.weights()) {
    diff.weights.push_back({weight.graph(), weight.name(), weight.type(), weight.other_type(),
                            weight.elements(), weight.differing(), weight.max_difference()});
  }
  return diff;
}

namespace {

void SetSizes(int64_t m, int64_t n, int64_t k, v1::ProductSizes* sizes) {
  sizes->set_m(m);
  sizes->set_n(n);
  sizes->set_k(k);
}

}  // namespace

v1::TileReport ToProto(const TileReport& report) {
  v1::TileReport message;
  SetSizes(report.limits.m, report.limits.n, report.limits.k, message.mutable_limits());
  for (const TiledProduct& product : report.products) {
    v1::TiledProduct* added = message.add_products();
    added->set_node(product.node);
    added->set_op(product.op);
    SetSizes(product.m, product.n, product.k, added->mutable_sizes());
    SetSizes(product.tiles_m, product.tiles_n, product.tiles_k, added->mutable_tiles());
  }
  message.mutable_others()->insert(report.others.begin(), report.others.end());
  message.set_samples(report.samples);
  message.set_error(report.error);
  return message;
}

TileReport FromProto(const v1::TileReport& message) {
  TileReport report;
  report.limits = {message.limits().m(), message.limits().n(), message.limits().k()};
  for (const v1::TiledProduct& product : message.products()) {
    report.products.push_back({product.node(), product.op(), product.sizes().m(),
                               product.sizes().n(), product.sizes().k(), product.tiles().m(),
                               product.tiles().n(), product.tiles().k()});
  }
  report.others = Copied<std::map<std::string, int64_t>>(message.others());
  report.samples = message.samples();
  report.error = message.error();
  return report;
}

v1::EditReport ToProto(const EditReport& report) {
  v1::EditReport message;
  *message.mutable_changes() = Copied<Strings>(report.changes);
  *message.mutable_dropped() = Copied<Strings>(report.dropped);
  return message;
}

EditReport FromProto(const v1::EditReport& message) {
  return {Copied<std::vector<std::string>>(message.changes()),
          Copied<std::vector<std::string>>(message.dropped())};
}

}  // namespace quench::analyser
