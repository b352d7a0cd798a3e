// Steps that list a module or make another module from it.
#pragma once

#include <absl/status/statusor.h>

#include "common/base/context.h"
#include "common/steps/step.h"
#include "quench/analyser/v1/analyser.pb.h"

namespace quench::analyser {

absl::StatusOr<v1::IntrospectResult> IntrospectStep(const v1::IntrospectRequest& request,
                                                    const steps::Workplace& place,
                                                    const StepContext& context);
absl::StatusOr<v1::PartitionResult> PartitionStep(const v1::PartitionRequest& request,
                                                  const steps::Workplace& place,
                                                  const StepContext& context);

absl::StatusOr<v1::InferResult> InferStep(const v1::InferRequest& request,
                                          const steps::Workplace& place,
                                          const StepContext& context);

absl::StatusOr<v1::TileResult> TileStep(const v1::TileRequest& request,
                                        const steps::Workplace& place, const StepContext& context);

absl::StatusOr<v1::EditResult> EditStep(const v1::EditRequest& request,
                                        const steps::Workplace& place, const StepContext& context);

absl::StatusOr<v1::DiffResult> DiffStep(const v1::DiffRequest& request,
                                        const steps::Workplace& place, const StepContext& context);

// Sizes of symbolic dims, by name; `field` is the path of `message` in the request, for errors.
absl::StatusOr<std::map<std::string, int64_t>> SizesOf(
    const google::protobuf::RepeatedPtrField<step::v1::SymbolSize>& message,
    const std::string& field);

}  // namespace quench::analyser
