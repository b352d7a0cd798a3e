// From what a caller asks for to steps: presets are written out, every wrong field is found.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <vector>

#include "services/gateway/step_table.h"
#include "services/gateway/violations.h"

namespace quench::gateway {

inline constexpr int kMaxSteps = 2000;

// `spec` with its work as a list of steps, dependencies first and else in the order given.
// INVALID_ARGUMENT with BadRequest for every field that is wrong; paths begin with `spec`.
absl::StatusOr<v1::WorkflowSpec> Expand(const v1::WorkflowSpec& spec);

// For each step the positions of those that it waits for, in ascending order, each once.
std::vector<std::vector<int>> DependenciesOf(const v1::StepList& steps);

// The blobs that the steps read and no step gives, each once.
std::vector<Digest> InputsOf(const v1::StepList& steps);

// Which of these a tenant has not.
using MissingBlobs = std::function<absl::StatusOr<std::vector<Digest>>(
    const std::string& tenant, const std::vector<Digest>& digests)>;
// FAILED_PRECONDITION with a violation `MISSING` for every blob that is not there.
absl::Status CheckBlobs(const std::string& tenant, const std::vector<Digest>& needed,
                        const MissingBlobs& missing);

// Whether `text` is of letters, digits, `_`, `-`, `.` and, where `slash`, `/`; 1 to 255 bytes.
bool IsStepName(const std::string& text, bool slash);

namespace internal {

// Presets; what they give is checked as any list of steps is.
v1::StepList WriteOut(const v1::CompileBatch& batch, Violations* violations);
v1::StepList WriteOut(const v1::AnalyseBatch& batch, Violations* violations);

// Names, requests, bindings and cycles; `path` is where the steps stand in the request. Gives the
// order in which steps follow their dependencies, or nothing where something is wrong.
std::vector<int> CheckSteps(const v1::StepList& steps, const std::string& path,
                            Violations* violations);

}  // namespace internal
}  // namespace quench::gateway
