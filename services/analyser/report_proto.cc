#include "services/analyser/report_proto.h"

#include <algorithm>

namespace quench::analyser {
namespace {

constexpr int kMaxLayers = 10'000;

using Names = google::protobuf::RepeatedPtrField<std::string>;
using Errors = google::protobuf::RepeatedPtrField<v1::ValueError>;

void SetError(const ValueError& error, v1::ValueError* out) {
  out->set_name(error.name);
  out->set_error(error.error);
  out->set_tolerance(error.tolerance);
  out->set_type(std::string(DataTypeName(error.type)));
}

ValueError ErrorOf(const v1::ValueError& message) {
  const std::optional<DataType> type = ParseDataType(message.type());
  return {message.name(), message.error(), message.tolerance(),
          type.value_or(DataType::kUndefined)};
}

void AddErrors(const std::vector<ValueError>& errors, int most, Errors* out) {
  for (const ValueError& error : errors) {
    if (out->size() == most) return;
    SetError(error, out->Add());
  }
}

std::vector<ValueError> ErrorsOf(const Errors& message) {
  std::vector<ValueError> errors;
  for (const v1::ValueError& each : message) errors.push_back(ErrorOf(each));
  return errors;
}

void AddNames(const std::vector<std::string>& names, Names* out) {
  for (const std::string& name : names) {
    if (out->size() == kMaxLayers) return;
    *out->Add() = name;
  }
}

void SetRewrites(const RewritesReport& report, v1::RewritesResult* out) {
  out->set_checked(report.checked);
  out->set_passed(report.passed);
  out->set_reason(report.reason);
  out->set_quantized(report.quantized);
  out->set_groups(report.groups);
  out->set_elements(report.elements);
  out->set_ties(report.ties);
  for (const GroupFailure& each : report.failures) {
    if (out->failures_size() == kMaxLayers) break;
    v1::GroupFailure* added = out->add_failures();
    added->set_node(each.node);
    added->set_value(each.value);
    added->set_wrong(each.wrong);
    added->set_elements(each.elements);
    added->set_worst_index(each.index);
    added->set_actual(each.actual);
    added->set_expected(each.expected);
  }
  AddNames(report.without_counterpart, out->mutable_without_counterpart());
  for (const OutputReport& each : report.outputs) {
    v1::OutputFidelity* added = out->add_outputs();
    SetError(each.value, added->mutable_value());
    added->set_sqnr_db(each.sqnr_db);
  }
}

RewritesReport RewritesOf(const v1::RewritesResult& message) {
  RewritesReport report;
  report.checked = message.checked();
  report.passed = message.passed();
  report.reason = message.reason();
  report.quantized = message.quantized();
  report.groups = message.groups();
  report.elements = message.elements();
  report.ties = message.ties();
  for (const v1::GroupFailure& each : message.failures()) {
    report.failures.push_back({each.node(), each.value(), each.wrong(), each.elements(),
                               each.worst_index(), each.actual(), each.expected()});
  }
  report.without_counterpart = {message.without_counterpart().begin(),
                                message.without_counterpart().end()};
  for (const v1::OutputFidelity& each : message.outputs())
    report.outputs.push_back({ErrorOf(each.value()), each.sqnr_db()});
  return report;
}

void SetMagnitudes(const MagnitudeReport& report, v1::MagnitudesResult* out) {
  out->set_type(std::string(DataTypeName(report.type)));
  out->set_checked(report.checked);
  out->set_passed(report.passed);
  out->set_reason(report.reason);
  out->set_exponent(report.exponent);
  out->set_given(report.given);
  out->set_value(report.value);
  out->set_magnitude(report.magnitude);
  out->set_limit(report.limit);
  AddErrors(report.outputs, std::numeric_limits<int>::max(), out->mutable_outputs());
  out->set_first_not_finite(report.first);
}

MagnitudeReport MagnitudesOf(const v1::MagnitudesResult& message) {
  MagnitudeReport report;
  report.type = ParseDataType(message.type()).value_or(DataType::kUndefined);
  report.checked = message.checked();
  report.passed = message.passed();
  report.reason = message.reason();
  report.exponent = message.exponent();
  report.given = message.given();
  report.value = message.value();
  report.magnitude = message.magnitude();
  report.limit = message.limit();
  report.outputs = ErrorsOf(message.outputs());
  report.first = message.first_not_finite();
  return report;
}

}  // namespace

v1::VerifyResult ToProto(const VerifyReport& report) {
  v1::VerifyResult out;
  const KernelsReport& kernels = report.kernels;
  out.set_passed(report.passed);
  out.set_kernels_passed(kernels.passed);
  out.set_oracle(kernels.oracle == "reference" ? v1::ORACLE_REFERENCE : v1::ORACLE_INTERPRETER);
  AddErrors(kernels.outputs, std::numeric_limits<int>::max(), out.mutable_outputs());
  out.set_layers_compared(kernels.layers.compared);
  AddErrors(kernels.layers.values, kMaxLayers, out.mutable_layers());
  AddNames(kernels.layers.without_counterpart, out.mutable_layers_without_counterpart());
  out.set_first_layer(kernels.layers.first);
  out.set_worst_layer(kernels.layers.worst);
  out.set_device(report.device);
  out.set_layers_device(kernels.layers.device);
  SetRewrites(report.rewrites, out.mutable_rewrites());
  for (const MagnitudeReport& each : report.magnitudes) SetMagnitudes(each, out.add_magnitudes());
  for (const auto& [symbol, size] : report.sizes) {
    step::v1::SymbolSize* added = out.add_sizes();
    added->set_symbol(symbol);
    added->set_size(size);
  }
  return out;
}

VerifyReport FromProto(const v1::VerifyResult& message) {
  VerifyReport report;
  report.passed = message.passed();
  KernelsReport& kernels = report.kernels;
  kernels.passed = message.kernels_passed();
  kernels.oracle = message.oracle() == v1::ORACLE_REFERENCE ? "reference" : "interpreter";
  kernels.outputs = ErrorsOf(message.outputs());
  kernels.layers.compared = message.layers_compared();
  kernels.layers.values = ErrorsOf(message.layers());
  kernels.layers.without_counterpart = {message.layers_without_counterpart().begin(),
                                        message.layers_without_counterpart().end()};
  kernels.layers.first = message.first_layer();
  kernels.layers.worst = message.worst_layer();
  report.device = message.device();
  kernels.layers.device = message.layers_device();
  report.rewrites = RewritesOf(message.rewrites());
  for (const v1::MagnitudesResult& each : message.magnitudes())
    report.magnitudes.push_back(MagnitudesOf(each));
  for (const step::v1::SymbolSize& each : message.sizes())
    report.sizes.emplace(each.symbol(), each.size());
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
    added->set_mean_error(value.mean_error);
    added->set_error(value.error);
    if (value.saturation) added->set_saturation(*value.saturation);
  };
  for (const ValueComparison& value : report.outputs) add(value, out.add_outputs());
  for (const ValueComparison& value : report.layers) {
    if (out.layers_size() < kMaxLayers) add(value, out.add_layers());
  }
  out.set_first_divergence(report.first_divergence);
  out.set_tolerance(report.tolerance);
  out.mutable_reference_only()->Assign(report.reference_only.begin(), report.reference_only.end());
  out.mutable_other_only()->Assign(report.other_only.begin(), report.other_only.end());
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

CompareReport FromProto(const v1::CompareResult& message) {
  CompareReport report;
  report.samples = message.samples();
  const auto value_of = [](const v1::ValueComparison& value) {
    ValueComparison result{value.value(),     value.elements(),   value.sqnr_db(), value.cosine(),
                           value.max_error(), value.mean_error(), value.error(),   std::nullopt};
    if (value.has_saturation()) result.saturation = value.saturation();
    return result;
  };
  for (const v1::ValueComparison& value : message.outputs())
    report.outputs.push_back(value_of(value));
  for (const v1::ValueComparison& value : message.layers())
    report.layers.push_back(value_of(value));
  report.first_divergence = message.first_divergence();
  report.tolerance = message.tolerance();
  report.reference_only = {message.reference_only().begin(), message.reference_only().end()};
  report.other_only = {message.other_only().begin(), message.other_only().end()};
  if (!message.has_accuracy()) return report;
  const v1::Accuracy& given = message.accuracy();
  Accuracy& accuracy = report.accuracy.emplace();
  accuracy.rows = given.rows();
  accuracy.agreement = given.agreement();
  if (given.has_reference_top1()) {
    accuracy.reference_top1 = given.reference_top1();
    accuracy.other_top1 = given.top1();
    accuracy.reference_top5 = given.reference_top5();
    accuracy.other_top5 = given.top5();
  }
  return report;
}

}  // namespace quench::analyser
