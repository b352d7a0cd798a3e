#include "services/codegen/report_proto.h"

namespace quench::codegen {
namespace {

using Extent = CheckReport::Extent;

v1::CheckReport CheckToProto(const CheckReport& check) {
  v1::CheckReport message;
  message.set_extent(check.extent == Extent::kWhole    ? v1::CHECK_EXTENT_WHOLE
                     : check.extent == Extent::kGroups ? v1::CHECK_EXTENT_GROUPS
                                                       : v1::CHECK_EXTENT_NONE);
  message.set_reason(check.reason);
  message.set_variant(check.variant);
  message.set_groups(check.groups);
  message.set_all_groups(check.all_groups);
  message.set_kernels(check.kernels);
  message.set_all_kernels(check.all_kernels);
  message.mutable_nodes()->Assign(check.nodes.begin(), check.nodes.end());
  message.set_largest_error(check.largest_error);
  message.set_undecided(check.undecided);
  message.set_seconds(check.seconds);
  return message;
}

CheckReport CheckFromProto(const v1::CheckReport& message) {
  CheckReport check;
  check.extent = message.extent() == v1::CHECK_EXTENT_WHOLE    ? Extent::kWhole
                 : message.extent() == v1::CHECK_EXTENT_GROUPS ? Extent::kGroups
                                                               : Extent::kNone;
  check.reason = message.reason();
  check.variant = message.variant();
  check.groups = message.groups();
  check.all_groups = message.all_groups();
  check.kernels = message.kernels();
  check.all_kernels = message.all_kernels();
  check.nodes = {message.nodes().begin(), message.nodes().end()};
  check.largest_error = message.largest_error();
  check.undecided = message.undecided();
  check.seconds = message.seconds();
  return check;
}

}  // namespace

v1::CompileReport ToProto(const CompileReport& report) {
  v1::CompileReport message;
  message.set_uuid(report.uuid);
  message.set_target(report.target);
  message.set_target_string(report.target_string);
  message.mutable_unused_features()->Assign(report.unused_features.begin(),
                                            report.unused_features.end());
  message.mutable_variants()->Assign(report.variants.begin(), report.variants.end());
  for (const KernelReport& kernel : report.kernels) {
    v1::KernelReport* out = message.add_kernels();
    out->set_node(kernel.node);
    out->set_op(kernel.op);
    out->set_kernel(kernel.kernel);
    out->set_runner_up(kernel.runner_up);
    out->set_reason(kernel.reason);
    out->set_cost(kernel.cost);
    out->set_slow(kernel.slow);
    out->set_multiplications(kernel.multiplications);
    out->set_arena_bytes(kernel.arena_bytes);
    out->set_bytes(kernel.bytes);
    out->set_performed(kernel.performed);
    out->set_dtype(kernel.dtype);
  }
  message.set_arena_bytes(report.arena_bytes);
  message.set_arena_lower_bound_bytes(report.arena_lower_bound);
  message.set_device_arena_bytes(report.device_arena_bytes);
  message.set_device_arena_lower_bound_bytes(report.device_arena_lower_bound);
  message.set_weight_bytes(report.weight_bytes);
  for (const VariantWeights& weights : report.variant_weights) {
    v1::VariantWeights* out = message.add_variant_weights();
    out->set_variant(weights.variant);
    out->set_bytes(weights.bytes);
  }
  message.set_code_bytes(report.code_bytes);
  message.set_rest_bytes(report.rest_bytes);
  for (const passes::KeptFloat32& kept : report.kept_float32) {
    v1::KeptFloat32* out = message.add_kept_float32();
    out->set_node(kept.node);
    out->set_op(kept.op);
    out->set_reason(kept.reason);
  }
  for (const ArenaBuffer& buffer : report.arena) {
    v1::ArenaBuffer* out = message.add_arena();
    out->mutable_values()->Assign(buffer.values.begin(), buffer.values.end());
    out->set_offset(buffer.offset);
    out->set_bytes(buffer.bytes);
    out->set_first(buffer.first);
    out->set_last(buffer.last);
  }
  if (report.measurement) {
    v1::Measurement* out = message.mutable_measurement();
    out->set_builds(report.measurement->builds);
    out->set_rounds(report.measurement->rounds);
    out->set_predicted_choice_ms(report.measurement->predicted_choice_ms);
    out->set_measured_choice_ms(report.measurement->measured_choice_ms);
  }
  if (report.check) *message.mutable_check() = CheckToProto(*report.check);
  return message;
}

CompileReport FromProto(const v1::CompileReport& message) {
  CompileReport report;
  report.uuid = message.uuid();
  report.target = message.target();
  report.target_string = message.target_string();
  report.unused_features = {message.unused_features().begin(), message.unused_features().end()};
  report.variants = {message.variants().begin(), message.variants().end()};
  for (const v1::KernelReport& kernel : message.kernels()) {
    report.kernels.push_back({kernel.node(), kernel.op(), kernel.kernel(), kernel.runner_up(),
                              kernel.reason(), kernel.cost(), kernel.slow(),
                              kernel.multiplications(), kernel.arena_bytes(), kernel.bytes(), "",
                              kernel.performed(), kernel.dtype()});
  }
  report.arena_bytes = message.arena_bytes();
  report.arena_lower_bound = message.arena_lower_bound_bytes();
  report.device_arena_bytes = message.device_arena_bytes();
  report.device_arena_lower_bound = message.device_arena_lower_bound_bytes();
  report.weight_bytes = message.weight_bytes();
  for (const v1::VariantWeights& weights : message.variant_weights())
    report.variant_weights.push_back({weights.variant(), weights.bytes()});
  report.code_bytes = message.code_bytes();
  report.rest_bytes = message.rest_bytes();
  for (const v1::KeptFloat32& kept : message.kept_float32())
    report.kept_float32.push_back({kept.node(), kept.op(), kept.reason()});
  for (const v1::ArenaBuffer& buffer : message.arena()) {
    report.arena.push_back({{buffer.values().begin(), buffer.values().end()},
                            buffer.offset(),
                            buffer.bytes(),
                            buffer.first(),
                            buffer.last()});
  }
  if (message.has_measurement()) {
    const v1::Measurement& measurement = message.measurement();
    report.measurement = {measurement.builds(), measurement.rounds(),
                          measurement.predicted_choice_ms(), measurement.measured_choice_ms()};
  }
  if (message.has_check()) report.check = CheckFromProto(message.check());
  return report;
}

}  // namespace quench::codegen
