// The gateway's knowledge of the services' steps: the table steps.def, and reflection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/metrics/metrics.h"
#include "quench/gateway/v1/workflows.pb.h"

namespace quench::gateway {

using Digest = ::build::bazel::remote::execution::v2::Digest;

struct StepRow {
  std::string request;  // field of StepSpec.request
  std::string method;   // "Import"
  std::string service;  // "importer"
  metrics::Service service_label;
  metrics::Stage stage;
  const google::protobuf::Descriptor* result;
  std::vector<std::string> required;  // fields of the request that are marked REQUIRED
};

// The rows in the order of steps.def.
const std::vector<StepRow>& StepTable();
// The row for a spec's request; null if it has no request.
const StepRow* RowOf(const v1::StepSpec& spec);
// The request in a spec, with its bindings not yet filled in.
const google::protobuf::Message& RequestOf(const v1::StepSpec& spec);

// The ends of a binding: a field of a request, and the name of a StepOutput. Empty for a number that
// is not a port's.
std::string InputOf(const v1::Binding& binding);
std::string OutputOf(const v1::Binding& binding);

enum class OutputKind { kNone, kDigest, kModule };
// The kind of a field of a request, or of an output by StepOutput.name. Whether an
// `external_data/...` exists is known when the step has ended.
OutputKind KindOfField(const google::protobuf::Descriptor& message, const std::string& field);
OutputKind KindOfOutput(const StepRow& row, const std::string& output);

// The outputs of a result, except `result` itself.
std::vector<v1::StepOutput> OutputsOf(const google::protobuf::Message& result);
// Every digest in a message that is not empty, at any depth.
std::vector<Digest> DigestsIn(const google::protobuf::Message& message);

// The request of `spec` with its bindings filled in by `find`(step, output), which gives null for an
// output that does not exist: the error names that output.
absl::StatusOr<std::unique_ptr<google::protobuf::Message>> BindRequest(
    const v1::StepSpec& spec,
    const std::function<const v1::StepOutput*(const std::string&, const std::string&)>& find);

// The message as bytes, which are equal for equal messages within one build.
std::string Serialised(const google::protobuf::Message& message);

}  // namespace quench::gateway
