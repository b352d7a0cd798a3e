// Turns a request into steps: presets are written out, and every wrong field is found.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <vector>

#include "services/gateway/step_table.h"
#include "services/gateway/violations.h"

namespace quench::gateway {

inline constexpr int kMaxSteps = 20'000;
inline constexpr int64_t kMaxWorkflowBytes = int64_t{32} << 20;

// `spec` with its work as a list of steps, dependencies first and otherwise in the order given.
// INVALID_ARGUMENT with BadRequest for every field that is wrong; paths begin with `spec`. Steps
// together take at most `max_bytes` of memory: steps beyond that are not written out.
absl::StatusOr<v1::WorkflowSpec> Expand(const v1::WorkflowSpec& spec,
                                        int64_t max_bytes = kMaxWorkflowBytes);

// For each step, the positions of the steps it waits for, in ascending order, each once.
std::vector<std::vector<int>> DependenciesOf(const v1::StepList& steps);

// The blobs that the requests name, each once.
std::vector<Digest> InputsOf(const v1::StepList& steps);

// The given blobs that a tenant does not have.
using MissingBlobs = std::function<absl::StatusOr<std::vector<Digest>>(
    const std::string& tenant, const std::vector<Digest>& digests)>;
// The bytes of a blob that a tenant has.
using ReadBlob =
    std::function<absl::StatusOr<std::string>(const std::string& tenant, const Digest& digest)>;
// The blob store, as workflows need it.
struct BlobAccess {
  MissingBlobs missing;
  ReadBlob read;
};
// FAILED_PRECONDITION with a violation `MISSING` for every blob that the tenant does not have.
absl::Status CheckBlobs(const std::string& tenant, const std::vector<Digest>& needed,
                        const MissingBlobs& missing);

// The blobs named by the manifests of samples in the requests of `steps`. INVALID_ARGUMENT if a
// blob is not a manifest, and if the manifests have more than `max_bytes` together.
absl::StatusOr<std::vector<Digest>> SamplesIn(const std::string& tenant, const v1::StepList& steps,
                                              const ReadBlob& read,
                                              int64_t max_bytes = kMaxWorkflowBytes);

// The bytes that a workflow counts against its tenant's limit: its steps, and the names of its
// samples' blobs.
int64_t BytesOf(const v1::WorkflowSpec& expanded, size_t samples);

// Whether `text` is 1 to 255 letters, digits, `_`, `-`, `.` and, if `slash` is true, `/` between parts, none of which is `.`
// or `..`.
bool IsStepName(const std::string& text, bool slash);

namespace internal {

// Presets; the steps they give are checked like any list of steps.
v1::StepList WriteOut(const v1::CompileBatch& batch, int64_t max_bytes, Violations* violations);
v1::StepList WriteOut(const v1::AnalyseBatch& batch, int64_t max_bytes, Violations* violations);
// Says that the steps at `path` are too large.
void AddTooLarge(const std::string& path, int64_t max_bytes, Violations* violations);

// Names, requests, bindings and cycles; `path` is where the steps stand in the request. Gives the
// order in which steps follow their dependencies, or nothing if something is wrong.
std::vector<int> CheckSteps(const v1::StepList& steps, const std::string& path,
                            Violations* violations);

}  // namespace internal
}  // namespace quench::gateway
